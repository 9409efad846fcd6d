"""gpumem's allocator as an object for PyTorch, CuPy and RMM, with what it says of itself."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import threading
from typing import Any, Callable, Iterator, Optional, Union

from . import _binary, _c_abi, _torch

_STACKS = {"none": 0, "alloc": 1, "all": 2}


class Allocator:
    """gpumem's caching allocator in this process. Nothing is loaded until it is used.

    PyTorch, before it uses the GPU:  torch.cuda.memory.change_current_allocator(gpumem.allocator)
    a pool of PyTorch's own:          torch.cuda.MemPool(gpumem.allocator.allocator())
    CuPy:                             cupy.cuda.set_allocator(gpumem.allocator.malloc)
    RMM:                              rmm.mr.set_current_device_resource(gpumem.allocator.rmm())

    Its methods raise RuntimeError where the library cannot be had or refuses. Sizes are in bytes. Devices are numbered as CUDA numbers
    them in this process.
    """

    def __init__(self) -> None:
        # A signal handler may call while its thread holds it.
        self._lock = threading.RLock()
        self._library: Optional[ctypes.CDLL] = None
        self._ends_stacks = False
        self._cupy_pool: Any = None
        self._torch_pool: Any = None
        # Whether it is PyTorch's current allocator.
        self.serves_torch = False

    @property
    def library(self) -> ctypes.CDLL:
        """The library with all functions of gpumem_alloc.h. It is loaded when this is first read."""
        # Without the lock, which another thread may have held when this process was forked.
        if self._library is not None:
            return self._library
        with self._lock:
            if self._library is None:
                library = _c_abi.load(_binary.find_library())
                # A history begins with the first allocation, and may be written when memory runs out (GPUMEM_SNAPSHOT_ON_OOM).
                if "history" in os.environ.get("GPUMEM_ALLOC_CONF", ""):
                    self._python_stacks(library, native=True)
                self._library = library
            return self._library

    def allocator(self) -> Any:
        """Returns PyTorch's object for this allocator.

        PyTorch's change_current_allocator() calls this, and from then on torch.cuda's figures, histories, snapshots and pools are
        those of this allocator. Called by anybody else it returns an object for torch.cuda.MemPool.
        """
        from . import _torch_pluggable

        library = self.library
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        if caller.split(".")[0] != "torch":
            # A pool does not keep it alive.
            with self._lock:
                self._torch_pool = self._torch_pool or _torch_pluggable.for_pool(library)
            return self._torch_pool
        hooks = _torch_pluggable.current(self)
        self.serves_torch = True
        return hooks

    @property
    def malloc(self) -> Callable[[int], Any]:
        """The function for cupy.cuda.set_allocator(). From when it is first read cupy.get_default_memory_pool() returns this
        allocator's figures and actions."""
        from . import _cupy

        library = self.library
        with self._lock:
            if self._cupy_pool is None:
                self._cupy_pool = _cupy.Pool(library)
                _cupy.replace_default(self._cupy_pool)
            return self._cupy_pool.malloc  # type: ignore[no-any-return]

    def rmm(self, device: Optional[int] = None) -> Any:
        """Returns a memory resource for RMM, of the current device if none is named."""
        from . import _rmm

        return _rmm.resource(self.library, device)

    def stats(self, device: int = 0) -> _c_abi.Stats:
        """Returns the figures of a device, which are 0 where nothing was allocated yet."""
        return _c_abi.stats(self.library, device)

    def reset_peaks(self, device: int = -1) -> None:
        """Has the peaks of a device, or of all (-1), begin anew, also for peak_report()."""
        self._check(self.library.gpumem_reset_peaks(device))

    def empty_cache(self, device: int = -1) -> int:
        """Gives unused memory of a device, or of all (-1), back to the driver, after waiting for the device. Returns the bytes."""
        return self._check(self.library.gpumem_empty_cache(device))

    def compact(self, device: int = -1) -> int:
        """Joins what is free on a device, or on all (-1), to large blocks. Returns the bytes that went back to the driver."""
        return self._check(self.library.gpumem_compact(device))

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Names what this thread allocates within, in the dashboard, reports and snapshots. gpumem.tag() also marks the timeline."""
        self._check(self.library.gpumem_scope_push(name.encode()))
        try:
            yield
        finally:
            self.library.gpumem_scope_pop()

    def record_history(self, stacks: str = "alloc", max_events: int = 200_000, native: bool = True, device: int = 0) -> None:
        """Begins a history of a device, or of all in use (-1), which reports and snapshots need.

        `stacks`: whether call stacks are taken for "alloc", for "all" (frees, too) or for "none". `native` is as in python_stacks().
        """
        if stacks != "none":
            self.python_stacks(native)
        self._check(self.library.gpumem_record_history(device, _STACKS[stacks], max_events))

    def stop_history(self, device: int = 0) -> None:
        """Ends the history of a device, or of all in use (-1), and forgets it."""
        self._check(self.library.gpumem_stop_history(device))

    def python_stacks(self, native: bool = True) -> None:
        """Lets histories have call stacks of Python instead of native functions, for threads that run this interpreter.

        Taking one waits for the GIL and then takes about a microsecond. Where no Python runs, as in most of a backward pass, the stacks
        are of native functions; with native=False there are none.
        """
        self._python_stacks(self.library, native)

    def peak_report(self, device: int = 0) -> str:
        """Returns who held the memory at the peak since the history began or reset_peaks()."""
        return self._text(lambda text, room: self.library.gpumem_peak_report(device, text, room))

    def leak_report(self, min_steps: int, device: int = 0) -> str:
        """Returns who holds blocks that outlived so many steps (gpumem.step() ends one), and whether they grow."""
        return self._text(lambda text, room: self.library.gpumem_leak_report(device, min_steps, text, room))

    def snapshot(self, path: Union[str, os.PathLike[str]], device: int = 0) -> None:
        """Writes a file for PyTorch's viewers: JSON if its name ends in ".json", else a pickle. It has events and call stacks if there
        is a history."""
        self._check(self.library.gpumem_snapshot(device, os.fsencode(path)))

    def _push(self, name: str) -> bool:
        """Begins a scope, for gpumem.tag(). False: the library is not in use, or refuses, which it has said."""
        return self._library is not None and self._library.gpumem_scope_push(_utf8(name)) == 0

    def _pop(self) -> None:
        """Ends the innermost scope of the thread."""
        self.library.gpumem_scope_pop()

    def _mark(self, name: str) -> None:
        """Marks the timeline, for gpumem.mark(), if the library is in use."""
        if self._library is not None:
            self._library.gpumem_mark(_utf8(name))

    def _step(self) -> None:
        """Ends a step, for gpumem.step(), if the library is in use."""
        if self._library is not None:
            self._library.gpumem_step()

    def _python_stacks(self, library: ctypes.CDLL, native: bool) -> None:
        if not self._ends_stacks:
            self._ends_stacks = True
            # Python is about to end: this waits until no thread asks it for a stack any more.
            atexit.register(library.gpumem_python_stacks, None, 0)
        _c_abi.check(library, library.gpumem_python_stacks(ctypes.pythonapi._handle, native))

    def _check(self, result: int) -> int:
        return _c_abi.check(self.library, result)

    def _text(self, report: Callable[[Any, int], int]) -> str:
        """Returns a report of any length: `report` fills a buffer and returns the length."""
        room = 1 << 16
        while True:
            text = ctypes.create_string_buffer(room)
            length = self._check(report(text, room))
            if length < room:
                return text.value.decode()
            room = length + 1


def _utf8(name: str) -> bytes:
    return str(name).encode("utf-8", "replace")


allocator = Allocator()


def serve(name: str) -> None:
    """Puts the imported torch or cupy on the allocator, for `gpumem-tui run --allocator`."""
    module = sys.modules[name]
    if name == "cupy":
        module.cuda.set_allocator(allocator.malloc)
    elif _torch.without_cuda(module) is None:
        module.cuda.memory.change_current_allocator(allocator)
