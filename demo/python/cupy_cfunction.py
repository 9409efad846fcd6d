#!/usr/bin/env python3
"""CuPy on gpumem's allocator.

    cargo build --profile embed -p gpumem-alloc-c
    python3 demo/python/cupy_cfunction.py target/embed/libgpumem_alloc.so

run.py does this for any script. CuPy's own pool is then not used, and its memory hooks see nothing: cupy.get_default_memory_pool()
returns the class Pool below. A pool of CuPy may be put on top: cupy.cuda.MemoryPool(cupy.cuda.get_allocator()).
CuPy's per-thread default streams (Stream.ptds, CUPY_CUDA_PER_THREAD_DEFAULT_STREAM) need nothing.
"""

import ctypes
import sys

import cupy
import gpumem

MIB = 1 << 20


class OutOfMemoryError(cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError):
    """Raised for too little memory. Programs for CuPy's own allocators catch it, and a CuPy pool on top of this allocator does, too:
    it then releases what it keeps and tries again."""

    def __init__(self, text: str) -> None:
        MemoryError.__init__(self, text)
        self.status = 2  # cudaErrorMemoryAllocation

    def __reduce__(self) -> tuple:
        return type(self), self.args


class Allocator:
    """Allocates for one stream. CuPy does not pass the stream to its allocators, so each stream has its own."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.functions = [gpumem.address(library, name) for name in ("gpumem_cupy_malloc", "gpumem_cupy_free")]
        self.of_stream = {}

    def malloc(self, size: int) -> cupy.cuda.MemoryPointer:
        stream = cupy.cuda.get_current_stream().ptr
        allocator = self.of_stream.get(stream)
        if allocator is None:
            allocator = cupy.cuda.memory.CFunctionAllocator(stream, *self.functions, self.library)
            self.of_stream[stream] = allocator
        memory = allocator.malloc(size)
        if memory.ptr == 0 and size > 0:  # CuPy does not check
            raise gpumem.failure(self.library, OutOfMemoryError)
        return memory


class Pool:
    """Stands in for cupy.get_default_memory_pool(): the library's figures and actions for the current device."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.malloc = Allocator(library).malloc
        self.limits = {}

    def _stats(self) -> gpumem.Stats:
        return gpumem.stats(self.library, cupy.cuda.Device().id)

    def used_bytes(self) -> int:
        return self._stats().all.allocated_bytes.current

    def total_bytes(self) -> int:
        return self._stats().all.reserved_bytes.current

    def free_bytes(self) -> int:
        return self._stats().free_bytes

    def n_free_blocks(self) -> int:
        return self._stats().free_blocks

    def free_all_blocks(self, stream=None) -> None:
        """Releases the memory of all streams: a single one cannot be chosen."""
        if self.library.gpumem_empty_cache(cupy.cuda.Device().id) < 0:
            raise RuntimeError(gpumem.last_error(self.library))

    def set_limit(self, size=None, fraction=None) -> None:
        if (size is None) == (fraction is None):
            raise ValueError("either size or fraction must be given")
        device = cupy.cuda.Device()
        total = device.mem_info[1]
        size = int(total * fraction) if size is None else size
        if not 0 <= size <= total:
            raise ValueError(f"a limit of {size} bytes: the device has {total}")
        # A size of 0 means no limit.
        self.library.gpumem_memory_fraction(size / total or 1.0, device.id)
        self.limits[device.id] = size

    def get_limit(self) -> int:
        return self.limits.get(cupy.cuda.Device().id, 0)


def install(path: str) -> ctypes.CDLL:
    library = gpumem.load(path)
    pool = cupy._default_memory_pool = Pool(library)
    cupy.cuda.set_allocator(pool.malloc)
    gpumem.stacks_if_asked(library)
    return library


def main() -> None:
    library = install(sys.argv[1])
    a = cupy.random.rand(2048, 2048, dtype=cupy.float32)
    for _ in range(20):
        a = cupy.tanh(a @ a.T / 64)
    print("mean", float(a.mean()))
    figures = gpumem.stats(library).all
    print(f"reserved {figures.reserved_bytes.current // MIB} MiB, allocated {figures.allocated_bytes.current // MIB} MiB")
    try:
        cupy.empty(1 << 45, dtype=cupy.uint8)
    except cupy.cuda.memory.OutOfMemoryError as error:
        print(f"too much is an exception: {error}")


if __name__ == "__main__":
    main()
