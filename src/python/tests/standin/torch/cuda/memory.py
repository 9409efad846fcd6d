"""Allocators that take the place of torch's own."""

import ctypes

# The one that has.
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
