#!/usr/bin/env python3
"""PyTorch on gpumem's allocator. A program only needs to call install() before it first uses the GPU.

    cargo build --profile embed -p gpumem-alloc-c
    python3 demo/python/torch_pluggable.py target/embed/libgpumem_alloc.so

run.py does this for any script. Run gpumem-tui beside it to see its blocks.
"""

import ctypes
import sys

import gpumem
import torch
import torch_figures
import torch_pools

MIB = 1 << 20


def install(path: str) -> ctypes.CDLL:
    library = gpumem.load(path)
    # For untested versions it leaves out what it would have to guess.
    library.gpumem_set_torch_version(str(torch.__version__).encode())
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "gpumem_torch_alloc", "gpumem_torch_free")
    # PyTorch silently skips functions that are not set: without record_stream memory would be reused too early.
    hooks = allocator.allocator()
    hooks.set_init_fn(gpumem.address(library, "gpumem_init"))
    hooks.set_reset_fn(gpumem.address(library, "gpumem_reset"))
    hooks.set_memory_fraction_fn(gpumem.address(library, "gpumem_memory_fraction"))
    hooks.set_base_alloc_fn(gpumem.address(library, "gpumem_base_alloc"))
    hooks.set_record_stream_fn(gpumem.address(library, "gpumem_record_stream"))
    hooks.set_begin_allocate_to_pool(gpumem.address(library, "gpumem_begin_allocate_to_pool"))
    hooks.set_end_allocate_to_pool_fn(gpumem.address(library, "gpumem_end_allocate_to_pool"))
    hooks.set_release_pool(gpumem.address(library, "gpumem_release_pool"))
    torch.cuda.memory.change_current_allocator(allocator)
    # PyTorch frees shared tensors that other processes still hold after its own variables are gone, so the allocator must outlive those.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(hooks))
    # cuDNN's search for the fastest convolution, trees of CUDA graphs and sharing tensors with other processes call functions that
    # PyTorch's class for pluggable allocators refuses. They would fail without this.
    library.gpumem_adopt_torch()
    torch_figures.answer(library)
    torch_pools.answer(library)
    gpumem.stacks_if_asked(library)
    return library


def main() -> None:
    library = install(sys.argv[1])
    with gpumem.scope(library, "weights"):  # the tag in the dashboard
        weights = torch.randn(4096, 4096, device="cuda")
    for step in range(20):
        library.gpumem_mark(f"step {step}".encode())
        weights = torch.tanh(weights @ weights.T / 64)
    torch.cuda.synchronize()
    figures = gpumem.stats(library).all
    print(
        f"reserved {figures.reserved_bytes.current // MIB} MiB (peak {figures.reserved_bytes.peak // MIB}), "
        f"allocated {figures.allocated_bytes.current // MIB} MiB (peak {figures.allocated_bytes.peak // MIB})"
    )
    try:
        torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
    except RuntimeError as error:
        print(f"too much is an exception, as with PyTorch's own: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    main()
