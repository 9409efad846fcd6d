#!/usr/bin/env python3
"""CuPy on gpumem's allocator.

    cargo build --profile embed -p gpumem-alloc-c
    python3 demo/python/cupy_cfunction.py target/embed/libgpumem_alloc.so

CuPy's own pool is not used then, and its memory hooks see nothing: what the pool would say (used_bytes) gpumem.stats(library) does, and
library.gpumem_empty_cache(-1) is its free_all_blocks(). A pool of CuPy's may be put on top: cupy.cuda.MemoryPool(cupy.cuda.get_allocator()).
CuPy's per-thread default streams (Stream.ptds, CUPY_CUDA_PER_THREAD_DEFAULT_STREAM) need nothing.
"""

import ctypes
import sys

import cupy
import gpumem

MIB = 1 << 20


class OutOfMemoryError(cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError):
    """Too little memory: what programs catch that know CuPy's own allocators, with and without its pool, and what such a pool looks for
    where it is put on this allocator: it gives back what it keeps, and tries again."""

    def __init__(self, text: str) -> None:
        MemoryError.__init__(self, text)
        self.status = 2  # cudaErrorMemoryAllocation

    def __reduce__(self) -> tuple:
        return type(self), self.args


class Allocator:
    """Memory for the current stream. CuPy does not tell its allocators the stream, so each stream has one of its own."""

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
        if memory.ptr == 0 and size > 0:  # CuPy does not look
            raise gpumem.failure(self.library, OutOfMemoryError)
        return memory


def retire_streams(library: ctypes.CDLL) -> None:
    """Has CuPy say so before it destroys a stream: CUDA crashes when it is asked about one that is gone. Who destroys a stream of another
    library's, which arrays were made on, calls gpumem_retire_stream before."""
    destroy = cupy.cuda.Stream.__del__

    def retire_and_destroy(stream: cupy.cuda.Stream) -> None:
        foreign = stream.ptr in (0, 1, 2) or getattr(stream, "_foreign_stream_ref", None) is not None
        # One that cannot be retired now, as a graph is captured, stays.
        if foreign or library.gpumem_retire_stream(stream.ptr) == 0:
            destroy(stream)

    cupy.cuda.Stream.__del__ = retire_and_destroy


def install(path: str) -> ctypes.CDLL:
    library = gpumem.load(path)
    retire_streams(library)
    cupy.cuda.set_allocator(Allocator(library).malloc)
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
