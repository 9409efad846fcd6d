"""The history of operations, and allocators that take the place of torch's own. Keys of entries are those of torch 2.11."""

import ctypes
import os
import sys
import time

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

    assert not _lazy_modules or "torch._inductor" in sys.modules or begun[-1][0] is None, "this would import the compiler"
    add("snapshot", 0)
    return {"segments": _recorded.segments(), "device_traces": [list(_history), []], "allocator_settings": {}}


# The allocator that has taken the place.
current = None


class _Hooks:
    """torch's object for such an allocator. `told` has the addresses of functions that were set."""

    def __init__(self, path, take, give):
        library = ctypes.CDLL(path)
        self.names, self.told = (take, give), {}
        self._take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)((take, library))

    def __getattr__(self, name):
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda address: self.told.update({name[4:]: address})

    def take(self, size):
        return self._take(size, 0, None)


class CUDAPluggableAllocator:
    def __init__(self, path, take, give):
        self._allocator = _Hooks(path, take, give)

    def allocator(self):
        return self._allocator


def change_current_allocator(allocator):
    from . import is_initialized

    global current
    found = allocator.allocator()
    if current is not None or is_initialized():
        raise RuntimeError("Can't swap an already initialized allocator")
    current = found


def get_allocator_backend():
    return "native" if current is None else "pluggable"


class MemPool:
    pass
