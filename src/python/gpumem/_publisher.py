"""Whether this process publishes: start and end, forks and the interpreter's end. No function here raises."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import sys
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, TypeVar, Union, cast

from . import _allocator, _binary, _history, _hook, _names, _oom, _pace, _torch
from ._pipe import Gone, Pipe
from ._say import say
from ._reader import Reader

# The longest time that the end of the interpreter waits for the thread.
END_S = 0.2
# The phase outside of all tags.
OUTSIDE = "other"
# Marks that are kept until something is published.
MAX_EARLY = 256
# Numbers of steps are below this.
MAX_NUMBER = 1 << 63
# The name under which `gpumem-tui run` loads this package, whose own name may be that of a module of the program.
RUN_NAME = "_gpumem_run"

_Function = TypeVar("_Function", bound=Callable[..., None])


def never_raises(function: _Function) -> _Function:
    """Keeps every exception of ours from the program."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> None:
        try:
            function(*arguments, **named)
        except Exception as error:
            say(f"{function.__name__} failed, the program goes on: {type(error).__name__}: {error}")

    return cast(_Function, call)


class Publisher:
    """The state of one process."""

    def __init__(self, before: Optional[Publisher] = None) -> None:
        self._reader: Optional[Reader] = None
        self._thread: Optional[threading.Thread] = None
        # A signal handler may call while its thread holds it.
        self._lock = threading.RLock()
        # What a forked process keeps: a request of its parent, and who will tell when torch is imported and initialised.
        self._wanted: bool = before._wanted if before else False
        self._asked_torch: bool = before._asked_torch if before else False
        self._hooked: bool = before._hooked if before else False
        self._quiet: bool = before._quiet if before else True
        self._steps: int = before._steps if before else 0
        self._history: Optional[int] = before._history if before else None
        self._tags: List[str] = []
        # Marks from before there was a connection.
        self._early: Deque[Dict[str, Any]] = deque(maxlen=MAX_EARLY)

    @never_raises
    def start(self, quiet: bool, history: Optional[int] = None) -> None:
        """Publishes from the moment on in which torch has initialised CUDA. `quiet`: says nothing if there is nothing to publish."""
        self._history = self._history if history is None else history
        self._quiet = self._quiet and quiet
        torch = _torch.imported()
        if torch is None:
            if importlib.util.find_spec("torch") is not None:
                if not self._hooked:
                    self._hooked = True
                    _hook.install(functools.partial(_after_import, quiet))
            elif not quiet:
                say("torch is not installed, so there is nothing to publish")
            return
        why = _torch.without_cuda(torch)
        if why is not None:
            if not quiet:
                say(why)
            return
        self._wanted = True
        if self._replaced():
            return
        entries, complaint = _history.wanted(self._history)
        if complaint:
            say(complaint)
        if entries:
            _history.import_compiler(torch)
        if _torch.initialised(torch):
            self.launch(torch)
            return
        if not quiet and _torch.driver_missing():
            say("there is no NVIDIA driver here, so there is nothing to publish")
        # Without holding the lock: torch may call back at once.
        if not self._asked_torch:
            self._asked_torch = _torch.call_when_initialised(torch, _when_initialised)
            if not self._asked_torch:
                say("this torch cannot tell when CUDA is initialised: call gpumem.publish() after that")

    @never_raises
    def launch(self, torch: Any) -> None:
        """Starts the thread, unless it runs or nobody wants it."""
        with self._lock:
            if not self._wanted or self._replaced() or (self._thread is not None and self._thread.is_alive()):
                return
            binary = _binary.find()
            if binary is None:
                say("the program gpumem-tui was not found, so nothing is published: set GPUMEM_TUI to its path")
                return
            interval, complaint = _pace.interval(os.environ.get("GPUMEM_INTERVAL"))
            if complaint:
                say(complaint)
            history = _history.History(_history.wanted(self._history)[0])
            # At once, so that it has the first allocations of the program.
            complaint = history.begin(torch)
            if complaint:
                say(complaint)
            connect = functools.partial(Pipe.start, [binary, "publisher"])
            self._reader = Reader(torch, connect, interval, history, self._early)
            self._thread = threading.Thread(target=_run, args=(self._reader,), name="gpumem", daemon=True)
            self._thread.start()

    def _replaced(self) -> bool:
        """Checks whether torch is on gpumem's allocator, and says that its own has nothing to publish."""
        if _allocator.allocator.serves_torch and not self._quiet:
            say("torch is on gpumem's allocator, which publishes by itself")
        return _allocator.allocator.serves_torch

    @never_raises
    def stop(self) -> None:
        """Ends the thread, and waits END_S for its last message."""
        self._wanted = False
        thread, reader = self._thread, self._reader
        self._thread = self._reader = None
        if reader is not None:
            reader.stop()
        if thread is not None and thread is not threading.current_thread():
            thread.join(END_S)

    @never_raises
    def mark(self, name: str) -> None:
        """Marks the begin of a phase."""
        self._send(name)

    def _send(self, name: str, **more: Union[int, str]) -> None:
        """Sends a mark, without waiting, or keeps it until something is published."""
        _allocator.allocator._mark(name)
        message = {"type": "mark", "name": _names.clean(str(name)), "at": time.time_ns() // 1000, **more}
        reader = self._reader
        pipe = reader.pipe if reader else None
        if pipe is None:
            self._early.append(message)
            return
        pipe.send(message)
        try:
            pipe.flush(0.0)
        except Gone:
            # The thread notices, too, and says so.
            pass

    @never_raises
    def step(self, number: Optional[int]) -> None:
        """Marks a step."""
        _allocator.allocator._step()
        self._steps = self._steps + 1 if number is None else int(number)
        # The channel's table of names is small, so the number of a step is no part of its name. There, 0 is no number.
        if 0 < self._steps < MAX_NUMBER:
            self._send("step", number=self._steps)
        else:
            self._send(f"step {self._steps}")

    @never_raises
    def enter(self, name: str) -> None:
        """Begins a tag."""
        self._tags.append(_names.clean(str(name)))
        self._send(name, tag=self._tags[-1])

    @never_raises
    def leave(self) -> None:
        """Ends the innermost tag."""
        ended = self._tags.pop() if self._tags else ""
        around = self._tags[-1] if self._tags else ""
        self._send(around or OUTSIDE, tag=around)
        reader = self._reader
        if reader is not None and reader.history.first_end(ended):
            reader.want_map()

    def reader(self) -> Optional[Reader]:
        """Returns the running thread's."""
        return self._reader

    def forget(self) -> None:
        """Closes what a forked process has inherited. The parent's thread does not exist in it."""
        reader = self._reader
        if reader is not None and reader.pipe is not None:
            reader.pipe.forget()


_own = Publisher()


def chosen() -> Publisher:
    """Returns the publisher of this process: that of `gpumem-tui run`, if it has loaded this package under its name, too."""
    other = sys.modules.get(f"{RUN_NAME}._publisher")
    return cast(Publisher, other._own) if other is not None and other.__name__ != __name__ else _own


def _run(reader: Reader) -> None:
    """The body of the thread."""
    try:
        if reader.wait_for_cuda():
            _oom.attach(reader.torch, lambda: _own.reader())
            reader.run()
    except Gone as why:
        say(f"publishing has ended: {why}")
    except Exception as error:
        say(f"publishing has ended: {type(error).__name__}: {_names.clean(str(error))}")


def _after_import(quiet: bool) -> None:
    # The publisher may be that of a forked process.
    _own.start(quiet)


def _when_initialised() -> None:
    # This runs inside torch's initialisation, also in a forked process.
    torch = _torch.imported()
    if torch is not None:
        _own.launch(torch)


def _after_fork() -> None:
    """Runs in a forked process. Locks may be held by threads that do not exist in it."""
    global _own
    before, _own = _own, Publisher(_own)
    before.forget()


def _at_exit() -> None:
    _own.stop()


os.register_at_fork(after_in_child=never_raises(_after_fork))
atexit.register(_at_exit)
