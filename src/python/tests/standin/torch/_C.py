"""The native part."""

import os

observers = []


def _cuda_attach_out_of_memory_observer(observer):
    from . import cuda

    cuda._lazy_init()
    observers.append(observer)


def _cuda_memoryStats(device):
    from .cuda import _recorded

    return _recorded.stats(device)


def _cuda_isHistoryEnabled():
    from . import cuda

    return cuda.memory.recording
