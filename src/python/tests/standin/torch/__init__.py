"""Stands in for torch: the allocator's figures of a real training step on an H100, and the parts of torch that read them.

STANDIN_TORCH=2.6 has no `include_traces`; cpu has no CUDA. STANDIN_BLOCKS=N has so many blocks instead of the recorded ones.
STANDIN_HISTORY=N has a history of N entries that the program records. STANDIN_COMPILER=1 has a compiler, which no thread of ours may import.
"""

import os
import types

_kind = os.environ.get("STANDIN_TORCH", "2.11")
__version__ = "2.6.0+cu124" if _kind == "2.6" else "2.11.0+cu130"
# What torch imports when it is first looked for.
_lazy_modules = {"_inductor"} if os.environ.get("STANDIN_COMPILER") else set()
version = types.SimpleNamespace(hip=None, cuda=None if _kind == "cpu" else "13.0")
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(is_built=lambda: _kind != "cpu"))

from . import _C, cuda  # noqa: E402


class OutOfMemoryError(RuntimeError):
    """As torch.OutOfMemoryError."""


def empty(size):
    """Takes memory, as torch.empty(size, dtype=torch.uint8, device="cuda")."""
    cuda._lazy_init()
    if cuda.memory.current is not None:
        return cuda.memory.current.take(size)
    free = cuda.TOTAL - cuda.memory_stats(0)["reserved_bytes.all.current"]
    if size > free:
        for observer in _C.observers:
            observer(0, size, cuda.TOTAL, free)
        raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes")
    return bytearray()
