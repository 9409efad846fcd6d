"""The C ABI of gpumem's allocator through ctypes, shared by the examples beside this file. Copy it into your project.

    library = gpumem.load("target/embed/libgpumem_alloc.so")
    print(gpumem.stats(library).all.reserved_bytes.peak)

The functions are documented in src/alloc/c/include/gpumem_alloc.h.
"""

import atexit
import contextlib
import ctypes
import os
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p


class Stat(Structure):
    _fields_ = [(name, c_uint64) for name in ("current", "peak", "allocated", "freed")]


class PoolStats(Structure):
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
    _fields_ = [("size", c_uint64)]
    _fields_ += [(name, PoolStats) for name in ("all", "small_pool", "large_pool")]
    _fields_ += [
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
    ]


class PoolId(Structure):
    _fields_ = [(name, c_uint64) for name in ("first", "second")]


# Called when memory runs out, with the device and the number of requested bytes.
OOM_FN = CFUNCTYPE(None, c_int, c_size_t)
# Takes a thread's call stack: fills in at most so many frame numbers, the innermost first, and returns how many.
STACK_FN = CFUNCTYPE(c_int, POINTER(c_uint64), c_int)


def load(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    # Every function that a program calls: without argument types ctypes silently truncates a stream's handle to 32 bits.
    for name, result, arguments in (
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
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def address(library: ctypes.CDLL, name: str) -> int:
    """Returns a function's address, for callers without ctypes."""
    return ctypes.cast(getattr(library, name), c_void_p).value


def last_error(library: ctypes.CDLL) -> str:
    return (library.gpumem_last_error() or b"no error").decode()


def failure(library: ctypes.CDLL, out_of_memory: type = MemoryError) -> Exception:
    """Returns the exception for an allocation that returned NULL. Programs make room when memory is short, which helps only then."""
    text = last_error(library)
    short = "out of GPU memory" in text or "larger than any device" in text
    return (out_of_memory if short else RuntimeError)(text)


def stats(library: ctypes.CDLL, device: int = 0) -> Stats:
    """Returns what torch.cuda.memory_stats() would, which fails with a pluggable allocator."""
    found = Stats(size=ctypes.sizeof(Stats))
    if library.gpumem_stats(device, ctypes.byref(found)) != 0:
        raise RuntimeError(last_error(library))
    return found


def snapshot(library: ctypes.CDLL, path: str, device: int = 0) -> None:
    """Writes what torch.cuda.memory._dump_snapshot(path) would, which fails with a pluggable allocator. It has events and call
    stacks after library.gpumem_record_history(device, 1, 200000); those of Python with python_stacks()."""
    if library.gpumem_snapshot(device, os.fsencode(path)) != 0:
        raise RuntimeError(last_error(library))


@contextlib.contextmanager
def scope(library: ctypes.CDLL, name: str):
    """with gpumem.scope(library, "optimizer"): the thread's allocations within it have that name in the dashboard, reports and snapshots."""
    if library.gpumem_scope_push(name.encode()) != 0:
        raise RuntimeError(last_error(library))
    try:
        yield
    finally:
        library.gpumem_scope_pop()


def python_stacks(library: ctypes.CDLL, native: bool = True) -> None:
    """Lets histories have call stacks of Python instead of native functions, for threads that run this interpreter. Taking one waits
    for the GIL and then takes about a microsecond. Where no Python runs, as in most of a backward pass, the stacks are of native
    functions; with native=False there are none."""
    if not hasattr(library, "ends_stacks"):
        # Python is about to end: this waits until no thread asks it for a stack any more.
        library.ends_stacks = atexit.register(library.gpumem_python_stacks, None, 0)
    if library.gpumem_python_stacks(ctypes.pythonapi._handle, native) != 0:
        raise RuntimeError(last_error(library))


def stacks_if_asked(library: ctypes.CDLL) -> None:
    """Calls python_stacks() if GPUMEM_ALLOC_CONF has a history, which begins with the first allocation and may be written when memory
    runs out (GPUMEM_SNAPSHOT_ON_OOM)."""
    if "history" in os.environ.get("GPUMEM_ALLOC_CONF", ""):
        python_stacks(library)


def _text(library: ctypes.CDLL, report) -> str:
    """Returns a report of any length: `report` fills a buffer and returns the length."""
    room = 1 << 16
    while True:
        text = ctypes.create_string_buffer(room)
        length = report(text, room)
        if length < 0:
            raise RuntimeError(last_error(library))
        if length < room:
            return text.value.decode()
        room = length + 1


def peak_report(library: ctypes.CDLL, device: int = 0) -> str:
    """Returns who held the memory at the peak since the history began or library.gpumem_reset_peaks(device)."""
    return _text(library, lambda text, room: library.gpumem_peak_report(device, text, room))


def leak_report(library: ctypes.CDLL, min_steps: int, device: int = 0) -> str:
    """Returns who holds blocks that outlived so many steps (library.gpumem_step() ends one), and whether they grow."""
    return _text(library, lambda text, room: library.gpumem_leak_report(device, min_steps, text, room))
