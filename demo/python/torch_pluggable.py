#!/usr/bin/env python3
"""PyTorch on gpumem's allocator: what install() does is all that a program needs, before it first uses the GPU.

    cargo build --profile embed -p gpumem-alloc-c
    python3 demo/python/torch_pluggable.py target/embed/libgpumem_alloc.so                              a program of its own
    python3 demo/python/torch_pluggable.py target/embed/libgpumem_alloc.so train.py --its arguments     yours, as it is
    python3 demo/python/torch_pluggable.py target/embed/libgpumem_alloc.so -m torch.distributed.run --nproc-per-node 8 train.py

Run gpumem-tui beside it to see its blocks.
"""

import ctypes
import os
import sys

MIB = 1 << 20


def install(path: str) -> ctypes.CDLL:
    # Not above: run() has no use for it, which takes seconds.
    import gpumem
    import torch
    import torch_figures

    library = gpumem.load(path)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "gpumem_torch_alloc", "gpumem_torch_free")
    # PyTorch skips what is not set without a word: a missing record_stream would let memory be reused too early.
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
    # Without it cuDNN's search for the fastest convolution fails, as it asks what PyTorch's class for pluggable allocators refuses to say.
    library.gpumem_adopt_torch()
    torch_figures.answer(library)
    # A history from the first allocation on, of which GPUMEM_SNAPSHOT_ON_OOM writes what there was.
    if "history" in os.environ.get("GPUMEM_ALLOC_CONF", ""):
        gpumem.python_stacks(library)
    return library


def run(path: str, arguments: list[str]) -> None:
    """Becomes a Python that runs a script or a module as ever, on the library, and so does every Python that it starts: every_python."""
    if sys.flags.ignore_environment or sys.flags.no_site:
        sys.exit("torch_pluggable.py: Python's options -E, -I and -S keep it from what has torch use the library")
    every = os.path.join(os.path.dirname(os.path.abspath(__file__)), "every_python")
    os.environ["GPUMEM_TORCH"] = os.path.abspath(path) if os.path.exists(path) else path
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (every, os.environ.get("PYTHONPATH"))))
    options = [option for option in sys.orig_argv[1 : -len(sys.argv)] if option != "-m"]
    os.execv(sys.executable, [sys.executable, *options, *arguments])


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[2:] == ["-m"]:
        sys.exit(__doc__)
    if len(sys.argv) > 2:
        run(sys.argv[1], sys.argv[2:])
    library = install(sys.argv[1])
    import gpumem
    import torch

    with gpumem.scope(library, "weights"):  # who allocates, as the dashboard shows it
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
