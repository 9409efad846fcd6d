"""What torch says of its CUDA allocator.

Nothing here opens a CUDA context or makes the device work: stats and snapshots are the allocator's own books. torch.cuda.mem_get_info()
is not used, because it may open a context (about 500 MiB).
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, List, Optional, Union

from . import _uuid

# Device files of NVIDIA's driver: Linux, WSL, Jetson.
DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvmap")

Stats = Dict[str, int]
Attach = Callable[[Callable[[int, int, int, int], None]], None]


def imported() -> Optional[Any]:
    """Returns the module torch if it is imported and has its CUDA part."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "cuda") else None


def initialised(torch: Any) -> bool:
    """Checks whether torch has initialised CUDA in this process. In a fork of a process that has, it is false."""
    return bool(torch.cuda.is_initialized())


def without_cuda(torch: Any) -> Optional[str]:
    """Returns why this torch has no figures to publish."""
    if getattr(torch.version, "hip", None):
        return "this torch was built for ROCm, which is not supported"
    if not torch.backends.cuda.is_built():
        return "this torch was built without CUDA, so there is nothing to publish"
    return None


def driver_missing() -> bool:
    """Checks whether no NVIDIA driver is visible here. The driver is not asked: loading it takes long and may break later forks."""
    return not any(os.path.exists(path) for path in DRIVER_FILES)


def stats(torch: Any, device: int) -> Stats:
    """Returns the allocator's figures of a device, as torch.cuda.memory_stats() has them. Takes about 0.1 ms."""
    return {key: value for key, value in torch.cuda.memory_stats(device).items() if isinstance(value, int)}


def used(figures: Stats) -> bool:
    """Checks whether the process has ever taken memory of a device. Peaks and totals may have been reset."""
    return any(figures.get(f"reserved_bytes.all.{kind}", 0) > 0 for kind in ("current", "peak", "allocated"))


def describe(torch: Any, device: int) -> Dict[str, Union[str, int, None]]:
    """Returns the message about a device, which the process must have used: asking for another one may open a context on it."""
    properties = torch.cuda.get_device_properties(device)
    total = int(properties.total_memory)
    return {
        "type": "device",
        "index": device,
        "uuid": _uuid.of(device, properties),
        "name": str(properties.name)[:128],
        "total": total,
        "limit": _limit(torch, device, total),
    }


def _limit(torch: Any, device: int, total: int) -> Optional[int]:
    # torch 2.8 and newer.
    ask = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    fraction = ask(device) if ask else 1.0
    return int(total * fraction) if 0 < fraction < 1 else None


def blocks_of(figures: Stats) -> int:
    """Returns about how many blocks a snapshot has: those in use, and those that are free beside one."""
    return figures.get("active.all.current", 0) + figures.get("inactive_split.all.current", 0)


def trace_entries_at_most(figures: Stats) -> int:
    """Returns the most entries that a history can have. torch does not tell. An allocation is one entry and a free two."""
    taken, freed = (figures.get(f"allocation.all.{kind}", 0) for kind in ("allocated", "freed"))
    segments = sum(figures.get(f"segment.all.{kind}", 0) for kind in ("allocated", "freed"))
    return taken + 2 * freed + segments


def attach_to_oom(torch: Any) -> Optional[Attach]:
    """Returns the function that registers an observer of failed requests. It cannot be removed again, and CUDA must be initialised."""
    for name in ("_cuda_attach_out_of_memory_observer", "_cuda_attachOutOfMemoryObserver"):
        attach: Optional[Attach] = getattr(torch._C, name, None)
        if attach is not None:
            return attach
    return None


def call_when_initialised(torch: Any, function: Callable[[], None]) -> bool:
    """Has torch call a function at the end of its CUDA initialisation, or at once. False: this torch cannot do that.

    The thread that initialises calls it, while torch.cuda.is_initialized() is still false. A forked process inherits the request.
    """
    register = getattr(torch.cuda, "_lazy_call", None)
    if register is None:
        return False
    register(function)
    return True
