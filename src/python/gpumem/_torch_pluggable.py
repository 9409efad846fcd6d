"""PyTorch's objects for gpumem's allocator."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]

from . import _c_abi, _torch, _torch_figures, _torch_pools

if TYPE_CHECKING:
    from ._allocator import Allocator


def for_pool(library: ctypes.CDLL) -> Any:
    """Returns an object for a pool of PyTorch's own allocator. For that one NULL means that there is no memory: it then gives its caches
    back and asks again."""
    return _pluggable(library, "gpumem_alloc", "gpumem_free")


def current(allocator: Allocator) -> Any:
    """Returns the object that is about to become PyTorch's current allocator, and has torch's functions use the library."""
    # PyTorch refuses to change it then, and its functions have to stay as they are.
    if torch.cuda.is_initialized():
        raise RuntimeError("gpumem: PyTorch has used the GPU already: change its allocator before that")
    if torch.cuda.memory.get_allocator_backend() == "pluggable":
        whose = "this" if allocator.serves_torch else "another"
        raise RuntimeError(f"gpumem: PyTorch's allocator was replaced by {whose} one already")
    library = allocator.library
    # For untested versions it leaves out what it would have to guess.
    library.gpumem_set_torch_version(str(torch.__version__).encode())
    hooks = _pluggable(library, "gpumem_torch_alloc", "gpumem_torch_free")
    # PyTorch silently skips functions that are not set: without record_stream memory would be reused too early.
    for name in (
        "init_fn",
        "reset_fn",
        "memory_fraction_fn",
        "base_alloc_fn",
        "record_stream_fn",
        "begin_allocate_to_pool",
        "end_allocate_to_pool_fn",
        "release_pool",
    ):
        function = name[: -len("_fn")] if name.endswith("_fn") else name
        getattr(hooks, f"set_{name}")(_c_abi.address(library, f"gpumem_{function}"))
    # PyTorch frees shared tensors that other processes still hold after its own variables are gone, so the allocator must outlive those.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(hooks))
    # cuDNN's search for the fastest convolution, trees of CUDA graphs and sharing tensors with other processes call functions that
    # PyTorch's class for pluggable allocators refuses. They would fail without this, which needs PyTorch to have changed the allocator.
    _torch.call_when_initialised(torch, library.gpumem_adopt_torch)
    _torch_figures.answer(allocator)
    _torch_pools.answer(library)
    return hooks


def _pluggable(library: ctypes.CDLL, take: str, give: str) -> Any:
    return torch.cuda.memory.CUDAPluggableAllocator(library._name, take, give).allocator()
