"""Initialisation, devices and the allocator's books, as torch.cuda has them. The second device is not used."""

import os
import threading
import types

from .. import _C
from . import _recorded, memory
from .memory import MemPool

TOTAL = 85_029_158_912
_initialized = False
_initialising = threading.local()
_queued_calls = []
_lock = threading.Lock()
# Calls that open a context on an unused device would be counted here.
asked = []


def is_initialized():
    return _initialized and not _in_bad_fork


_in_bad_fork = False


def _mark_bad_fork():
    global _in_bad_fork
    _in_bad_fork = _initialized


os.register_at_fork(after_in_child=_mark_bad_fork)


def _lazy_call(function):
    with _lock:
        if is_initialized():
            function()
        else:
            _queued_calls.append(function)


def _lazy_init():
    global _initialized
    if is_initialized() or hasattr(_initialising, "now"):
        return
    with _lock:
        if _in_bad_fork:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        _initialising.now = True
        try:
            for call in _queued_calls:
                call()
        finally:
            del _initialising.now
        _initialized = True


init = _lazy_init


def device_count():
    return 2


def get_device_properties(device):
    _lazy_init()
    asked.append(device)
    return types.SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=TOTAL, uuid="0b2c5a1e-7d43-4f0a-9c61-5e8f2a9b4d17")


def memory_stats(device):
    return _flat(_C._cuda_memoryStats(device)) if is_initialized() else {}


def _flat(figures, prefix=""):
    found = {}
    for name, value in figures.items():
        found.update(_flat(value, prefix + name + ".") if isinstance(value, dict) else {prefix + name: value})
    return found


if os.environ.get("STANDIN_TORCH") == "2.6":

    def memory_snapshot(mempool_id=None):
        return _recorded.segments()

else:

    def memory_snapshot(mempool_id=None, include_traces=True):
        assert not include_traces, "this would copy the history"
        return _recorded.segments()
