"""The publisher process, and the connection to it.

Messages wait in an outbox until the connection takes them, so that a message is never cut in the middle. A socket is used and not a
pipe: writing to a broken pipe would end a program that has the default action for SIGPIPE.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple, Union

MAX_LINE = 1 << 20
# What may wait. Above it, messages are dropped.
MAX_WAITING_BYTES = 96 << 20
MAX_WAITING = 4096
# The publisher's messages are short.
MAX_READ = 4096
# Connections below this number could stand in for stdin, stdout or stderr, where the program has closed them.
LOWEST_FD = 3
# Starts a command in the background and ends, so that the command is no child of the program: one that waits for all of its children
# would wait for ever.
STARTER = ["/bin/sh", "-c", 'exec 3<&0; "$@" <&3 3<&- &', "sh"]
# The starter has nothing to do that takes time.
STARTER_S = 2.0
ENDED = "the publisher process has ended; GPUMEM_DEBUG=1 shows what it says"


class Gone(Exception):
    """The publisher process has ended, or does not read."""


class Pipe:
    """A connection to a publisher process. Any thread may send; only one reads."""

    def __init__(self, connection: socket.socket, process: Optional[subprocess.Popen[bytes]] = None) -> None:
        self._socket = connection
        self._identity = _identity(connection.fileno())
        self._process = process
        self._waiting: Deque[memoryview] = deque()
        self._flushing = threading.Lock()
        self._unread = b""

    @classmethod
    def start(cls, command: List[str]) -> Pipe:
        """Starts a publisher process."""
        ours, theirs = socket.socketpair()
        try:
            connection = _above_stdio(ours)
            debug = os.environ.get("GPUMEM_DEBUG", "0") not in ("", "0")
            # An image without a shell has the publisher as its child.
            starts = os.access(STARTER[0], os.X_OK)
            process = subprocess.Popen(
                [*STARTER, *command] if starts else command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=None if debug else subprocess.DEVNULL,
                close_fds=True,
                start_new_session=True,
                # The program's folder can be unmounted.
                cwd="/",
            )
        finally:
            ours.close()
            theirs.close()
        if starts:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STARTER_S)
        return cls(connection, process)

    def send(self, message: Dict[str, Any], payload: Optional[bytes] = None) -> bool:
        """Puts a message into the outbox, followed by its payload. False: there was no room for it."""
        if payload is not None:
            message = {**message, "bytes": len(payload)}
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        new = line + payload if payload else line
        waiting = sum(map(len, list(self._waiting)))
        if len(line) > MAX_LINE or len(self._waiting) >= MAX_WAITING or waiting + len(new) > MAX_WAITING_BYTES:
            return False
        self._waiting.append(memoryview(new))
        return True

    def flush(self, patience: float) -> bool:
        """Writes the outbox. Waits at most `patience` seconds in all. Returns whether it is empty. Raises Gone.

        Another thread that writes at the moment takes care of the rest.
        """
        until = time.monotonic() + patience
        if not self._flushing.acquire(timeout=patience):
            return False
        try:
            while self._waiting:
                if self._write():
                    continue
                left = until - time.monotonic()
                if left <= 0 or not self._writable(left):
                    return False
            return True
        finally:
            self._flushing.release()

    def _write(self) -> bool:
        """Writes some of the first message. False: the connection takes nothing now."""
        self._check()
        first = self._waiting[0]
        try:
            count = self._socket.send(first, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            raise Gone(ENDED) from error
        if count == len(first):
            self._waiting.popleft()
        else:
            self._waiting[0] = first[count:]
        return True

    def _writable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLOUT)
        return bool(poll.poll(seconds * 1000))

    def read(self) -> List[Dict[str, Union[str, bool]]]:
        """Returns the publisher's messages that have arrived, without waiting. Raises Gone."""
        self._check()
        try:
            new = self._socket.recv(MAX_READ, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise Gone(ENDED) from error
        if not new:
            raise Gone(ENDED)
        *lines, self._unread = (self._unread + new).split(b"\n")
        if len(self._unread) > MAX_READ:
            raise Gone("the publisher process sends no messages of ours")
        return [message for message in map(_parse, lines) if message is not None]

    def _check(self) -> None:
        """Raises Gone if the program has closed our connection, whose number may be that of another file since."""
        try:
            if _identity(self._socket.fileno()) == self._identity:
                return
        except OSError:
            pass
        self._socket.detach()
        raise Gone("the program has closed the connection to the publisher process")

    def end(self) -> None:
        """Closes the connection for this process and for all that have inherited it."""
        try:
            self._check()
            self._socket.shutdown(socket.SHUT_WR)
        except (Gone, OSError):
            pass
        self.forget()

    def forget(self) -> None:
        """Closes this process's connection only."""
        try:
            self._check()
            self._socket.close()
        except (Gone, OSError):
            pass
        # Popen warns of a process that it has not seen the end of.
        if self._process is not None and self._process.poll() is None:
            self._process.returncode = 0


def _above_stdio(given: socket.socket) -> socket.socket:
    return socket.socket(fileno=fcntl.fcntl(given.fileno(), fcntl.F_DUPFD_CLOEXEC, LOWEST_FD))


def _identity(fd: int) -> Tuple[int, int]:
    about = os.fstat(fd)
    return about.st_dev, about.st_ino


def _parse(line: bytes) -> Optional[Dict[str, Union[str, bool]]]:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
