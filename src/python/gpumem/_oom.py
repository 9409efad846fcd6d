"""What is sent when a request for memory fails: the request, the Python line, the stats and the block map of that moment.

torch calls the observer in the failing thread, with the GIL and after its allocator has unlocked, before it raises the exception.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import FrameType
from typing import Any, Callable, List, Optional

from . import _names, _torch
from ._pipe import Gone
from ._say import say
from ._reader import Reader

# The longest time that the failing thread is held up.
PATIENCE_S = 0.2
# A map must be taken within that, and be written.
MAP_S = 0.1
# Taking and pickling (measured: 0.6 µs and 1 µs), with room.
PER_BLOCK_S = 3e-6
# Programs that look for the largest batch run out of memory many times.
BETWEEN_MAPS_S = 1.0
MAX_FRAMES = 64
SHOWN_FRAMES = 8

_attached_in = 0
_last_map = float("-inf")


def attach(torch: Any, reader: Callable[[], Optional[Reader]]) -> None:
    """Registers the observer, once per process. `reader` returns the running thread's."""
    global _attached_in
    register = _torch.attach_to_oom(torch)
    if register is None or _attached_in == os.getpid():
        return
    _attached_in = os.getpid()

    def observe(device: int, requested: int, total: int, free: int) -> None:
        found = reader()
        if found is None or found.pipe is None:
            return
        try:
            report(found, device, requested, total, free)
        except Gone:
            # The thread notices, too, and says so.
            pass
        except Exception as error:
            # The program is to see its own exception.
            say(f"an out-of-memory report failed: {type(error).__name__}: {error}")

    try:
        register(observe)
    except RuntimeError:
        # The allocator "cudaMallocAsync" has no observers.
        pass


def report(reader: Reader, device: int, requested: int, total: int, free: int) -> None:
    """Sends the report, and waits at most PATIENCE_S for the publisher. What is left then is sent by the thread."""
    global _last_map
    pipe = reader.pipe
    if pipe is None:
        return
    begin = time.monotonic()
    stack = lines(sys._getframe(1), reader.torch_folder())
    where = stack[0] if stack else ""
    message = f"tried to allocate {requested:,} bytes with {free:,} of {total:,} bytes free"
    if len(stack) > 1:
        message += "; called by " + ", ".join(stack[1:])
    oom = {"type": "oom", "device": device, "requested": requested, "total": total, "free": free}
    pipe.send({**oom, "message": message, "where": where})
    figures = _torch.stats(reader.torch, device)
    if device not in reader.figures:
        pipe.send(_torch.describe(reader.torch, device))
    reader.figures[device] = figures
    pipe.send({"type": "stats", "device": device, "stats": figures})
    if begin - _last_map < BETWEEN_MAPS_S:
        pipe.send({"type": "map_skipped", "reason": "memory ran out less than a second before, too"})
    elif expected_cost(reader) > MAP_S:
        pipe.send({"type": "map_skipped", "reason": f"it would hold up the failing thread for more than {MAP_S} s"})
    else:
        _last_map = begin
        reader.send_map(pipe)
    pipe.flush(max(begin + PATIENCE_S - time.monotonic(), 0.0))


def expected_cost(reader: Reader) -> float:
    """Returns about how long a block map takes, in seconds."""
    blocks = sum(_torch.blocks_of(each) for each in reader.figures.values())
    history = reader.history.expected_cost(reader.torch, list(reader.figures.values()))
    return max(reader.map_cost, blocks * PER_BLOCK_S + history)


def lines(innermost: Optional[FrameType], torch_folder: str) -> List[str]:
    """Returns the Python lines that lead here, as "train.py:41 in forward", the innermost first; without those of torch and of ours.

    A thread of torch, such as one of a backward pass, has none. Then they are those of the main thread, which waits for it.
    """
    found = _outside(innermost, torch_folder)
    if not found:
        main = sys._current_frames().get(threading.main_thread().ident or 0)
        found = [f"{line} (main thread)" for line in _outside(main, torch_folder)]
    return found[:SHOWN_FRAMES]


def _outside(frame: Optional[FrameType], torch_folder: str) -> List[str]:
    hidden = (torch_folder + os.sep, os.path.dirname(os.path.abspath(__file__)) + os.sep)
    found: List[str] = []
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        if not code.co_filename.startswith(hidden):
            found.append(_names.clean(f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_name}"))
        frame = frame.f_back
    return found
