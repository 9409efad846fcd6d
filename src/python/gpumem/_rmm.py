"""RAPIDS (RMM, cuDF, ...) on gpumem's allocator.

RMM's adaptors (pools, limits, statistics, failure callbacks) go on top, and so do its allocators for CuPy and PyTorch. RMM's per-thread
default stream needs nothing.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional

import rmm  # type: ignore[import-not-found, unused-ignore]

from . import _c_abi


def resource(library: ctypes.CDLL, device: Optional[int]) -> Any:
    """Returns a memory resource of a device, or of the current one."""
    number = _current_device() if device is None else device

    def allocate(size: int, stream: Any) -> int:
        pointer: Optional[int] = library.gpumem_alloc(size, number, _handle(stream))
        if size > 0 and not pointer:
            raise _c_abi.failure(library)
        return pointer or 0

    def deallocate(pointer: int, size: int, stream: Any) -> None:
        library.gpumem_free(pointer, size, number, _handle(stream))

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)


def _current_device() -> int:
    from rmm._cuda.gpu import getDevice  # type: ignore[import-not-found, unused-ignore]

    return int(getDevice())


def _handle(stream: Any) -> int:
    """Returns the cudaStream_t of RMM's stream, by CUDA's protocol for Python streams: a version and the handle."""
    return int(stream.__cuda_stream__()[1])
