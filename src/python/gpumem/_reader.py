"""The thread that reads torch's figures and sends them to the publisher process."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from typing import Any, Callable, Deque, Dict, List, Optional

from . import _history, _names, _pace, _torch, _users
from ._pipe import Gone, Pipe

# The longest time between two looks at what the publisher says.
LONGEST_WAIT_S = 1.0
# Programs choose their devices early. Later, unused devices are asked for their stats only with every so many readings.
EARLY_READINGS = 30
UNUSED_EVERY = 10
# Nothing waits for this thread, so that a machine that is busy for a moment does not end publishing.
PATIENCE_S = 2.0
# The program's end waits for the last message.
BYE_S = 0.1
# torch calls back shortly before its initialisation is complete.
INITIALISING_S = 60.0
SHORT_WAIT_S = 0.02
MAX_MAP_BYTES = 64 << 20


class Reader:
    """Sends what torch says, until it is stopped, torch fails or the publisher is gone."""

    def __init__(
        self, torch: Any, connect: Callable[[], Pipe], interval: float, history: _history.History, early: Deque[Dict[str, Any]]
    ) -> None:
        self.torch = torch
        self._connect = connect
        self.pace = _pace.Stats(interval)
        self.history = history
        self._early = early
        self.pipe: Optional[Pipe] = None
        self.figures: Dict[int, _torch.Stats] = {}
        self.map_cost = 0.0
        self._wake = threading.Event()
        self._stopping = False
        self._readings = 0
        self._watched = False
        self._map_wanted = False
        self._users = ""

    def stop(self) -> None:
        """Has the thread end soon. Any thread may call."""
        self._stopping = True
        self._wake.set()

    def want_map(self) -> None:
        """Has the thread take a map at once, although nobody looks. Any thread may call."""
        self._map_wanted = True
        self._wake.set()

    def run(self) -> None:
        """Runs until the end, with CUDA initialised. Raises what ended it, unless that is `stopping`."""
        pipe = self._connect()
        # The program's signals are for its own threads. The publisher must not inherit this mask.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pipe.send(_names.hello(str(self.torch.__version__), self.torch_folder()))
            # Other threads send from here on.
            self.pipe = pipe
            while self._early:
                pipe.send(self._early.popleft())
            self._loop(pipe)
            pipe.send({"type": "bye"})
            pipe.flush(BYE_S)
        finally:
            self.pipe = None
            pipe.end()

    def wait_for_cuda(self) -> bool:
        """Waits until torch's initialisation is complete. False: it fails, or the thread is to end."""
        until = time.monotonic() + INITIALISING_S
        while not _torch.initialised(self.torch):
            if time.monotonic() > until or self._stopping:
                return False
            self._wake.wait(SHORT_WAIT_S)
        return not self._stopping

    def torch_folder(self) -> str:
        """Returns the folder of torch's Python files."""
        return os.path.dirname(str(self.torch.__file__))

    def _loop(self, pipe: Pipe) -> None:
        next_stats = next_map = time.monotonic()
        while not self._stopping:
            self._wake.clear()
            self._listen(pipe)
            if time.monotonic() >= next_stats:
                cost = self._timed(self.send_stats, pipe)
                next_stats = time.monotonic() + self.pace.after(cost)
            if self._map_wanted or (self._watched and time.monotonic() >= next_map):
                self._map_wanted = False
                self.map_cost = self._timed(self.send_map, pipe)
                next_map = time.monotonic() + _pace.block_map(self.map_cost)
            if not pipe.flush(PATIENCE_S):
                raise Gone("the publisher process does not read")
            until = min(next_stats, next_map) if self._watched else next_stats
            self._wake.wait(min(max(until - time.monotonic(), 0.0), LONGEST_WAIT_S))

    @staticmethod
    def _timed(function: Callable[[Pipe], None], pipe: Pipe) -> float:
        """Returns the CPU time that a call took of this thread."""
        begin = time.thread_time()
        function(pipe)
        return time.thread_time() - begin

    def _listen(self, pipe: Pipe) -> None:
        for message in pipe.read():
            if "watched" in message:
                self._watched = message["watched"] is True
            if "error" in message:
                raise Gone(_names.clean(str(message["error"])))

    def send_stats(self, pipe: Pipe) -> None:
        """Sends the stats of every device that was used, and about each device once."""
        look_at_all = self._readings < EARLY_READINGS or self._readings % UNUSED_EVERY == 0
        self._readings += 1
        for device in range(self.torch.cuda.device_count()) if look_at_all else list(self.figures):
            figures = _torch.stats(self.torch, device)
            if device not in self.figures:
                if not _torch.used(figures):
                    continue
                pipe.send(_torch.describe(self.torch, device))
            self.figures[device] = figures
            pipe.send({"type": "stats", "device": device, "stats": figures})
        users = _users.names(self.torch, self.history.graph_pools)
        if users != self._users:
            self._users = users
            pipe.send({"type": "users", "names": users})

    def send_map(self, pipe: Pipe) -> None:
        """Sends the block map of all devices, or why there is none."""
        try:
            found, why_no_events = self.history.block_map(self.torch, list(self.figures.values()))
            pickled = pickle.dumps(found, protocol=4)
            if len(pickled) > MAX_MAP_BYTES:
                raise _history.Skipped(f"the block map would be {len(pickled) >> 20} MiB")
            pipe.send({"type": "map", "events_skipped": why_no_events}, pickled)
        except _history.Skipped as why:
            pipe.send({"type": "map_skipped", "reason": str(why)})
        except RuntimeError as error:
            # The allocator "cudaMallocAsync" has no blocks to show.
            pipe.send({"type": "map_skipped", "reason": f"torch has no block map: {_names.clean(str(error))}"})
