"""The history of operations, as torch.cuda.memory has it. The keys are those of torch 2.11."""

import os
import sys
import time
import types

from . import _recorded

_history = [{"action": "alloc", "addr": 4096 * n, "size": 100, "stream": 0, "time_us": n} for n in range(int(os.environ.get("STANDIN_HISTORY", "0")))]
recording = bool(_history)
# The arguments with which a history was begun.
begun = []


def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=sys.maxsize):
    global recording
    recording = enabled is not None
    begun.append([context, stacks, max_entries])


def add(action, addr):
    """Adds an entry, as an operation does."""
    _history.append({"action": action, "addr": addr, "size": 100, "stream": 0, "time_us": time.time_ns() // 1000, "frames": []})


def _snapshot(device=None):
    from .. import _lazy_modules

    if _lazy_modules:
        sys.modules["torch._inductor"] = types.ModuleType("torch._inductor")
    add("snapshot", 0)
    return {"segments": _recorded.segments(), "device_traces": [list(_history), []], "allocator_settings": {}}
