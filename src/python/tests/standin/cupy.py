"""Stands in for cupy: what sets its allocator, and what that is asked."""

import ctypes
import types


class _CFunctionAllocator:
    def __init__(self, param, take, give, keeps):
        of = ctypes.c_void_p
        self._param = param
        self._take = ctypes.CFUNCTYPE(of, of, ctypes.c_size_t, ctypes.c_int)(take)
        self._give = ctypes.CFUNCTYPE(None, of, of, ctypes.c_int)(give)

    def malloc(self, size):
        return _Memory(self, self._take(self._param, size, 0) or 0)


class _Memory:
    def __init__(self, allocator, ptr):
        self._allocator, self.ptr = allocator, ptr

    def __del__(self):
        if self.ptr:
            self._allocator._give(self._allocator._param, self.ptr, 0)


class _OutOfMemoryError(MemoryError):
    pass


class _CUDARuntimeError(RuntimeError):
    pass


def _set_allocator(function):
    global _malloc
    _malloc = function


def empty(size):
    return _malloc(size)


def get_default_memory_pool():
    return _default_memory_pool


_default_memory_pool = types.SimpleNamespace(malloc=bytearray)
_malloc = _default_memory_pool.malloc
cuda = types.SimpleNamespace(
    memory=types.SimpleNamespace(CFunctionAllocator=_CFunctionAllocator, OutOfMemoryError=_OutOfMemoryError),
    runtime=types.SimpleNamespace(CUDARuntimeError=_CUDARuntimeError),
    set_allocator=_set_allocator,
    get_current_stream=lambda: types.SimpleNamespace(ptr=0),
    Device=lambda: types.SimpleNamespace(id=0, mem_info=(8 << 30, 8 << 30)),
)
