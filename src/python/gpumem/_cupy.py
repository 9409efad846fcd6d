"""CuPy on gpumem's allocator. CuPy's own pool is then not used, and its memory hooks see nothing.

A pool of CuPy may be put on top: cupy.cuda.MemoryPool(gpumem.allocator.malloc). CuPy's per-thread default streams (Stream.ptds,
CUPY_CUDA_PER_THREAD_DEFAULT_STREAM) need nothing.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Optional, Tuple

import cupy  # type: ignore[import-not-found, unused-ignore]

from . import _c_abi


class OutOfMemoryError(cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError):  # type: ignore[misc]
    """Raised for too little memory. Programs for CuPy's own allocators catch it, and a CuPy pool on top of this allocator does, too:
    it then releases what it keeps and tries again."""

    def __init__(self, text: str) -> None:
        MemoryError.__init__(self, text)
        self.status = 2  # cudaErrorMemoryAllocation

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), self.args


class Pool:
    """Stands in for cupy.get_default_memory_pool(): the library's figures and actions for the current device."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._functions = [_c_abi.address(library, name) for name in ("gpumem_cupy_malloc", "gpumem_cupy_free")]
        # CuPy does not pass the stream to its allocators, so each stream has its own.
        self._of_stream: Dict[int, Any] = {}
        self._limits: Dict[int, int] = {}

    def malloc(self, size: int) -> Any:
        """Allocates for the current stream, as CuPy's pools do."""
        stream = cupy.cuda.get_current_stream().ptr
        allocator = self._of_stream.get(stream)
        if allocator is None:
            allocator = cupy.cuda.memory.CFunctionAllocator(stream, *self._functions, self._library)
            self._of_stream[stream] = allocator
        memory = allocator.malloc(size)
        if memory.ptr == 0 and size > 0:  # CuPy does not check
            raise _c_abi.failure(self._library, OutOfMemoryError)
        return memory

    def _stats(self) -> _c_abi.Stats:
        return _c_abi.stats(self._library, cupy.cuda.Device().id)

    def used_bytes(self) -> int:
        return self._stats().all.allocated_bytes.current

    def total_bytes(self) -> int:
        return self._stats().all.reserved_bytes.current

    def free_bytes(self) -> int:
        return self._stats().free_bytes

    def n_free_blocks(self) -> int:
        return self._stats().free_blocks

    def free_all_blocks(self, stream: Any = None) -> None:
        """Releases the memory of all streams: a single one cannot be chosen."""
        _c_abi.check(self._library, self._library.gpumem_empty_cache(cupy.cuda.Device().id))

    def set_limit(self, size: Optional[int] = None, fraction: Optional[float] = None) -> None:
        if (size is None) == (fraction is None):
            raise ValueError("either size or fraction must be given")
        device = cupy.cuda.Device()
        total = device.mem_info[1]
        size = int(total * (fraction or 0.0)) if size is None else size
        if not 0 <= size <= total:
            raise ValueError(f"a limit of {size} bytes: the device has {total}")
        # A size of 0 means no limit.
        self._library.gpumem_memory_fraction(size / total or 1.0, device.id)
        self._limits[device.id] = size

    def get_limit(self) -> int:
        return self._limits.get(cupy.cuda.Device().id, 0)


def replace_default(pool: Pool) -> None:
    """Has cupy.get_default_memory_pool() return this pool."""
    cupy._default_memory_pool = pool
