#!/usr/bin/env python3
"""RAPIDS (RMM, cuDF, ...) on gpumem's allocator.

    cargo build --profile embed -p gpumem-alloc-c
    python3 demo/python/rmm_callback.py target/embed/libgpumem_alloc.so

Streams may be destroyed without telling the allocator. RMM's adaptors (pools, limits, statistics, failure callbacks) go on top,
and so do its allocators for CuPy and PyTorch. RMM's per-thread default stream needs nothing.
"""

import ctypes
import sys

import gpumem
import rmm

MIB = 1 << 20


def handle(stream) -> int:
    """Returns the cudaStream_t of RMM's stream, by CUDA's protocol for Python streams: a version and the handle."""
    return stream.__cuda_stream__()[1]


def install(path: str, device: int = 0) -> ctypes.CDLL:
    library = gpumem.load(path)

    def allocate(size, stream):
        pointer = library.gpumem_alloc(size, device, handle(stream))
        if size > 0 and not pointer:
            raise gpumem.failure(library)
        return pointer or 0

    def deallocate(pointer, size, stream):
        library.gpumem_free(pointer, size, device, handle(stream))

    rmm.mr.set_per_device_resource(device, rmm.mr.CallbackMemoryResource(allocate, deallocate))
    return library


def main() -> None:
    library = install(sys.argv[1])
    buffers = [rmm.DeviceBuffer(size=size * MIB) for size in range(1, 20)]
    del buffers[::2]
    figures = gpumem.stats(library).all
    print(f"reserved {figures.reserved_bytes.current // MIB} MiB, allocated {figures.allocated_bytes.current // MIB} MiB")
    try:
        rmm.DeviceBuffer(size=1 << 45)
    except MemoryError as error:
        print(f"too much is an exception: {error}")


if __name__ == "__main__":
    main()
