"""The functions of libgpumem_alloc.so, which gpumem_alloc.h documents, through ctypes."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, List, Tuple, Type


class Stat(Structure):
    """One figure: what there is now, the most there was, and the sums of all increases and decreases."""

    current: int
    peak: int
    allocated: int
    freed: int
    _fields_ = [(name, c_uint64) for name in ("current", "peak", "allocated", "freed")]


class PoolStats(Structure):
    """The figures of torch.cuda.memory_stats(), as counts and in bytes."""

    allocation: Stat
    segment: Stat
    active: Stat
    inactive_split: Stat
    requested_bytes: Stat
    allocated_bytes: Stat
    reserved_bytes: Stat
    active_bytes: Stat
    inactive_split_bytes: Stat
    _fields_ = [
        (name, Stat)
        for name in (
            "allocation",
            "segment",
            "active",
            "inactive_split",
            "requested_bytes",
            "allocated_bytes",
            "reserved_bytes",
            "active_bytes",
            "inactive_split_bytes",
        )
    ]


class Stats(Structure):
    """The figures of a device."""

    size: int
    all: PoolStats
    small_pool: PoolStats
    large_pool: PoolStats
    num_alloc_retries: int
    num_ooms: int
    num_sync_all_streams: int
    num_device_alloc: int
    num_device_free: int
    free_bytes: int
    largest_free_bytes: int
    free_blocks: int
    _fields_ = [
        ("size", c_uint64),
        *[(name, PoolStats) for name in ("all", "small_pool", "large_pool")],
        *[
            (name, c_uint64)
            for name in (
                "num_alloc_retries",
                "num_ooms",
                "num_sync_all_streams",
                "num_device_alloc",
                "num_device_free",
                "free_bytes",
                "largest_free_bytes",
                "free_blocks",
            )
        ],
    ]


class PoolId(Structure):
    """PyTorch's number of a private pool."""

    _fields_ = [(name, c_uint64) for name in ("first", "second")]


# Called when memory runs out, with the device and the number of requested bytes.
OOM_FN = CFUNCTYPE(None, c_int, c_size_t)
# Takes a thread's call stack: fills in at most so many frame numbers, the innermost first, and returns how many.
STACK_FN = CFUNCTYPE(c_int, POINTER(c_uint64), c_int)

# Every function that Python calls: without argument types ctypes silently truncates a stream's handle to 32 bits.
FUNCTIONS: Tuple[Tuple[str, Any, List[Any]], ...] = (
    ("gpumem_alloc", c_void_p, [c_size_t, c_int, c_void_p]),
    ("gpumem_free", None, [c_void_p, c_size_t, c_int, c_void_p]),
    ("gpumem_record_stream", None, [c_void_p, c_void_p]),
    ("gpumem_retire_stream", c_int, [c_void_p]),
    ("gpumem_empty_cache", c_int64, [c_int]),
    ("gpumem_compact", c_int64, [c_int]),
    ("gpumem_set_torch_version", c_int, [c_char_p]),
    ("gpumem_adopt_torch", c_int, []),
    ("gpumem_set_oom_fn", None, [OOM_FN]),
    ("gpumem_memory_fraction", None, [c_double, c_int]),
    ("gpumem_base_alloc", c_void_p, [c_void_p, POINTER(c_size_t)]),
    ("gpumem_begin_allocate_to_pool", None, [c_int, PoolId, c_void_p]),
    ("gpumem_end_allocate_to_pool", None, [c_int, PoolId]),
    ("gpumem_release_pool", None, [c_int, PoolId]),
    ("gpumem_pool_held", c_int64, [c_int, PoolId, POINTER(c_uint64), c_size_t]),
    ("gpumem_pool_uses", c_int64, [c_int, PoolId]),
    ("gpumem_stats", c_int, [c_int, POINTER(Stats)]),
    ("gpumem_reset_peaks", c_int, [c_int]),
    ("gpumem_mark", c_int, [c_char_p]),
    ("gpumem_scope_push", c_int, [c_char_p]),
    ("gpumem_scope_pop", c_int, []),
    ("gpumem_scope_set", c_int, [c_char_p]),
    ("gpumem_record_history", c_int, [c_int, c_int, c_uint64]),
    ("gpumem_has_history", c_int, [c_int]),
    ("gpumem_stop_history", c_int, [c_int]),
    ("gpumem_name_frame", c_uint64, [c_char_p, c_char_p, c_int]),
    ("gpumem_set_stack_fn", None, [STACK_FN]),
    ("gpumem_python_stacks", c_int, [c_void_p, c_int]),
    ("gpumem_step", c_int, []),
    ("gpumem_peak_report", c_int64, [c_int, c_char_p, c_size_t]),
    ("gpumem_leak_report", c_int64, [c_int, c_uint64, c_char_p, c_size_t]),
    ("gpumem_snapshot", c_int, [c_int, c_char_p]),
    ("gpumem_conf_error", c_int64, [c_char_p, c_size_t]),
    ("gpumem_last_error", c_char_p, []),
    ("gpumem_error_count", c_uint64, []),
)


def load(path: str) -> ctypes.CDLL:
    """Loads the library. Raises RuntimeError if that fails, or if it is another one."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise RuntimeError(f"gpumem: cannot load {path}: {error}") from error
    for name, result, arguments in FUNCTIONS:
        function = getattr(library, name, None)
        if function is None:
            raise RuntimeError(f"gpumem: {path} is not gpumem's library, or an old one: it lacks {name}")
        function.restype, function.argtypes = result, arguments
    return library


def address(library: ctypes.CDLL, name: str) -> int:
    """Returns a function's address, for callers without ctypes."""
    return ctypes.cast(getattr(library, name), c_void_p).value or 0


def last_error(library: ctypes.CDLL) -> str:
    """Returns what went wrong last on this thread."""
    return (library.gpumem_last_error() or b"no error").decode()


def failure(library: ctypes.CDLL, out_of_memory: Type[Exception] = MemoryError) -> Exception:
    """Returns the exception for an allocation that returned NULL. Programs make room when memory is short, which helps only then."""
    text = last_error(library)
    short = "out of GPU memory" in text or "larger than any device" in text
    return (out_of_memory if short else RuntimeError)(text)


def check(library: ctypes.CDLL, result: int) -> int:
    """Returns what a function returned. Raises RuntimeError if that is -1."""
    if result < 0:
        raise RuntimeError(last_error(library))
    return result


def stats(library: ctypes.CDLL, device: int) -> Stats:
    """Returns the figures of a device."""
    found = Stats(size=ctypes.sizeof(Stats))
    check(library, library.gpumem_stats(device, ctypes.byref(found)))
    return found
