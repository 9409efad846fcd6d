"""The memory figures of torch.cuda from gpumem's allocator. PyTorch takes them from its own, and fails with a pluggable allocator.

After answer() these functions use the library: of torch.cuda and torch.accelerator memory_stats(), memory_summary(), memory_allocated(),
memory_reserved(), their peaks and resets; of torch.cuda.memory memory_snapshot(), _record_memory_history(), _snapshot() and
_dump_snapshot(), _set_memory_metadata(), which begins a scope, and _allocation_traceback(); and of torch._C _cuda_isHistoryEnabled() and
_cuda_attach_out_of_memory_observer(). A history is of the current device and of those in use when it begins.
"""

from __future__ import annotations

import atexit
import pickle
import tempfile
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set

import torch  # type: ignore[import-not-found, unused-ignore]

from . import _c_abi

if TYPE_CHECKING:
    from ._allocator import Allocator

POOLS = ("all", "small_pool", "large_pool")
COUNTERS = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free")
# The entries of a history without a limit, PyTorch's default: 90 MB, and twice that for stitched blocks.
MOST_EVENTS = 1 << 20
# The most names for memory metadata, of the 4,095 names that a process has.
MOST_TEXTS = 256


def answer(allocator: Allocator) -> None:
    """Replaces torch's functions."""
    library = allocator.library
    # The sums by device when they were last reset.
    begun: Dict[int, Dict[str, Any]] = {}

    def memory_stats(device: int) -> Dict[str, Any]:
        _check(device)
        found = allocator.stats(device)
        stats: Dict[str, Any] = {
            field[0]: {pool: _stat(getattr(getattr(found, pool), field[0])) for pool in POOLS} for field in _c_abi.PoolStats._fields_
        }
        stats.update({name: getattr(found, name) for name in COUNTERS})
        # This allocator has no limit for splitting blocks.
        stats.update({name: _stat(_c_abi.Stat()) for name in ("oversize_allocations", "oversize_segments")}, max_split_size=-1)
        return _since(stats, begun[device]) if device in begun else stats

    def memory_stats_of_cuda(device: int) -> Dict[str, Any]:
        # New versions of PyTorch can refuse before they ask the driver, which this allocator does not do.
        rejections = {"num_oom_rejections": 0} if "num_oom_rejections" in (torch.cuda.memory_stats.__doc__ or "") else {}
        return memory_stats(device) | rejections

    def reset_peaks(device: int) -> None:
        _check(device)
        allocator.reset_peaks(device)

    def reset_sums(device: int) -> None:
        begun.pop(device, None)
        begun[device] = memory_stats(device)

    def snapshot(asked: Any = None) -> Dict[str, Any]:
        # PyTorch passes nothing, or the two numbers of a pool (two 0 stand for all pools), and in new versions whether it wants events.
        pool, events = tuple(asked[:2]) if asked else (0, 0), not asked or asked[2:] != (False,)
        whole: Dict[str, Any] = {"segments": [], "device_traces": [], "allocator_settings": {}, "external_annotations": []}
        for device in range(torch.cuda.device_count()):
            one = _snapshot_of(allocator, device)
            traces = one.pop("device_traces")[device:]
            whole["device_traces"].append(traces[0] if traces and events else [])
            whole["external_annotations"] += one.pop("external_annotations")
            whole["segments"] += [segment for segment in one.pop("segments") if pool in ((0, 0), segment["segment_pool_id"])]
            whole.update(one)
        return whole

    def record_history(
        enabled: Optional[str], context: Optional[str] = "all", stacks: str = "all", max_entries: int = MOST_EVENTS, *others: Any
    ) -> None:
        # In new versions the sixth of the other arguments says whether to include the GPU's memory.
        if others[5:6] == (False,):
            return
        taken = {None: "none", "state": "alloc", "alloc": "alloc", "all": "all"}[context]
        _history(allocator, enabled is not None, taken, 0 if enabled == "state" else max_entries, native=stacks != "python")

    def record_history_legacy(
        enabled: bool, record_context: bool = True, max_entries: int = 1, record_all: bool = False, *_ignored: Any
    ) -> None:
        _history(allocator, enabled, "alloc" if record_context or record_all else "none", max_entries)

    def traceback(address: int) -> Optional[List[Dict[str, Any]]]:
        for device in range(torch.cuda.device_count()):
            for segment in _snapshot_of(allocator, device)["segments"]:
                for block in segment["blocks"]:
                    if block["address"] == address and block["state"] == "active_allocated":
                        return block["frames"] or None
        return None

    # The metadata of the thread's allocations is a scope. Names stay forever, so texts that differ each time get no new ones.
    thread = threading.local()
    texts: Set[str] = set()

    def set_metadata(text: str) -> None:
        name = str.encode(text)
        if len(texts) < MOST_TEXTS:
            texts.add(text)
        _c_abi.check(library, library.gpumem_scope_set(name if text in texts else b"(other metadata)"))
        thread.metadata = text

    observers: List[Callable[[int, int, int, int], None]] = []

    def tell(device: int, size: int) -> None:
        free, total = torch.cuda.mem_get_info(device)
        for observer in observers:
            observer(device, size, total, free)

    told = _c_abi.OOM_FN(tell)

    def attach_observer(observer: Callable[[int, int, int, int], None]) -> None:
        if not observers:
            library.gpumem_set_oom_fn(told)
            # Python cannot be called any more after that.
            atexit.register(library.gpumem_set_oom_fn, _c_abi.OOM_FN())
        observers.append(observer)

    for name, function in {
        "_cuda_memoryStats": memory_stats_of_cuda,
        "_cuda_resetPeakMemoryStats": reset_peaks,
        "_cuda_resetAccumulatedMemoryStats": reset_sums,
        "_cuda_memorySnapshot": snapshot,
        "_cuda_record_memory_history": record_history,
        "_cuda_isHistoryEnabled": lambda: library.gpumem_has_history(-1) == 1,
        "_cuda_record_memory_history_legacy": record_history_legacy,
        "_cuda_attach_out_of_memory_observer": attach_observer,
        "_cuda_allocationTraceback": traceback,
        "_cuda_setMemoryMetadata": set_metadata,
        "_cuda_getMemoryMetadata": lambda: getattr(thread, "metadata", ""),
        "_cuda_memoryMetadataSupported": lambda: True,
        # Otherwise torch.accelerator does not even ask for figures.
        "_accelerator_isAllocatorInitialized": torch.cuda.is_initialized,
        "_accelerator_getDeviceStats": memory_stats,
        "_accelerator_resetPeakStats": reset_peaks,
        "_accelerator_resetAccumulatedStats": reset_sums,
    }.items():
        # Not all of them exist in every version.
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)


def _check(device: int) -> None:
    # The library does not know a device that does not exist, and would report that nothing is allocated on it.
    if not 0 <= device < torch.cuda.device_count():
        raise RuntimeError(f"Invalid device argument {device}: there are {torch.cuda.device_count()}")


def _stat(stat: _c_abi.Stat) -> Dict[str, int]:
    return {field[0]: getattr(stat, field[0]) for field in _c_abi.Stat._fields_}


def _since(stats: Dict[str, Any], begun: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the figures with the sums since the last reset. Current figures and peaks are unchanged."""
    summed = ("allocated", "freed", "num_alloc_retries", "num_ooms")
    return {
        name: _since(value, begun[name]) if isinstance(value, dict) else value - begun[name] if name in summed else value
        for name, value in stats.items()
    }


def _snapshot_of(allocator: Allocator, device: int) -> Dict[str, Any]:
    if allocator.stats(device).all.segment.allocated == 0:
        return {"segments": [], "device_traces": [], "external_annotations": []}
    with tempfile.TemporaryDirectory() as folder:
        allocator.snapshot(f"{folder}/snapshot.pickle", device)
        with open(f"{folder}/snapshot.pickle", "rb") as file:
            found: Dict[str, Any] = pickle.load(file)
        return found


def _history(allocator: Allocator, on: bool, stacks: str, most: int, native: bool = True) -> None:
    if not on:
        return allocator.stop_history(-1)
    # The current device has a history even if nothing was allocated on it yet.
    for device in (torch.cuda.current_device(), -1):
        allocator.record_history(stacks, min(most, MOST_EVENTS), native, device)
