"""Block maps, and the history of operations that torch keeps where the program records one.

A snapshot of torch copies the whole history, with the GIL: 0.7 µs an entry without call stacks, 1.4 µs with those of Python, and twice
that with those of C++ (measured with torch 2.11).

The first snapshot with call stacks imports torch's compiler, to look for the lines of compiled code. That takes five seconds, and a program
that imports it at the same time in another thread fails with ImportError (seen with torch 2.11). So our thread takes no such snapshot
before the compiler is there.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import Any, Dict, List, Optional, Tuple

from . import _torch

COMPILER = "torch._inductor"
# Above this many blocks a snapshot would hold the GIL for more than 0.1 s (measured: 6 ms for 10,000).
MAX_BLOCKS = 200_000
# Above this many entries of a history it would do so for more than about 30 ms.
MAX_ENTRIES = 10_000
PER_ENTRY_S = 3e-6
LEAST_ENTRIES = 100
# Tags whose end has the history read at once, so that it still has the blocks of that tag.
MAX_TAGS = 64


class Skipped(Exception):
    """A block map is not taken, for this reason."""


def wanted(argument: Optional[int]) -> Tuple[int, Optional[str]]:
    """Returns how many entries of a history are to be recorded: the argument of publish(), else GPUMEM_HISTORY, else 0. The second value
    is a sentence if that is not a valid number."""
    text = os.environ.get("GPUMEM_HISTORY", "") if argument is None else str(argument)
    if text in ("", "0"):
        return 0, None
    if text.isdecimal() and LEAST_ENTRIES <= int(text[:9]) <= MAX_ENTRIES:
        return int(text), None
    return 0, f"a history has from {LEAST_ENTRIES} to {MAX_ENTRIES:,} entries, so none is recorded"


class History:
    """Takes block maps. `entries`: records a history of so many entries, if the program itself records none; 0: does not."""

    def __init__(self, entries: int) -> None:
        self.entries = entries
        # Pools of CUDA graphs in the last map.
        self.graph_pools = 0
        self._own = False
        self._has_lines = False
        # The time of the last entry that was sent, by device.
        self._newest: Dict[int, int] = {}
        self._tags: List[str] = []

    def begin(self, torch: Any) -> Optional[str]:
        """Begins to record. Returns why it does not, if it should."""
        if not self.entries or is_on(torch):
            return None
        # Without the compiler there are no lines, but events and tags.
        self._has_lines = not imports_compiler(torch)
        try:
            context = "alloc" if self._has_lines else None
            torch.cuda.memory._record_memory_history(context=context, stacks="python", max_entries=self.entries)
        except (AttributeError, TypeError, RuntimeError) as error:
            return f"this torch records no history: {error}"
        self._own = True
        return None

    def first_end(self, tag: str) -> bool:
        """Checks whether a tag ends for the first time, and the history has blocks of it."""
        if not self.entries or tag in self._tags or len(self._tags) >= MAX_TAGS:
            return False
        self._tags.append(tag)
        return True

    def block_map(self, torch: Any, figures: List[_torch.Stats]) -> Tuple[Dict[str, Any], str]:
        """Returns the block map of all devices, whose stats are `figures`, with the new part of the history, and why it lacks that. Raises
        Skipped if taking it would be too slow.

        The allocator notes each snapshot in its history.
        """
        events, why = self._plan(torch, figures)
        if events:
            snapshot = torch.cuda.memory._snapshot()
            segments, traces = snapshot["segments"], snapshot["device_traces"]
            # The program may have begun another history.
            self._own = self._own and all(len(trace) <= self.entries for trace in traces)
            traces = [self._new(device, trace) for device, trace in enumerate(traces)]
        else:
            segments, traces = torch.cuda.memory_snapshot(**_without_traces(torch)), []
        pools = {tuple(segment.get("segment_pool_id", (0, 0))) for segment in segments}
        # torch numbers the pools of graphs in the first place, and those of programs in the second.
        self.graph_pools = sum(1 for pool in pools if pool[0] > 0)
        return {"segments": segments, "device_traces": traces}, why

    def expected_cost(self, torch: Any, figures: List[_torch.Stats]) -> float:
        """Returns about how long the history holds up a map, in seconds."""
        if not is_on(torch):
            return 0.0
        if self._imports_compiler(torch):
            return float("inf")
        entries = self._entries_at_most(figures)
        return entries * PER_ENTRY_S if entries <= MAX_ENTRIES else 0.0

    def _plan(self, torch: Any, figures: List[_torch.Stats]) -> Tuple[bool, str]:
        """Returns whether to read the history, and why not if there is one. Raises Skipped."""
        blocks = sum(_torch.blocks_of(each) for each in figures)
        if blocks > MAX_BLOCKS:
            raise Skipped(f"there are {blocks:,} blocks; a map is taken of at most {MAX_BLOCKS:,}")
        if not is_on(torch):
            return False, ""
        if self._imports_compiler(torch):
            raise Skipped(
                "the program records a history, for which torch would import its compiler now: GPUMEM_HISTORY="
                f"{MAX_ENTRIES} imports it when the program begins"
            )
        entries = self._entries_at_most(figures)
        if entries <= MAX_ENTRIES:
            return True, ""
        why = f"the history has up to {entries:,} entries; at most {MAX_ENTRIES:,} are read"
        if not _without_traces(torch):
            raise Skipped(f"{why}, which a snapshot of this torch would all copy")
        return False, why

    def _imports_compiler(self, torch: Any) -> bool:
        return imports_compiler(torch) and (self._has_lines or not self._own)

    def _entries_at_most(self, figures: List[_torch.Stats]) -> int:
        most = sum(_torch.trace_entries_at_most(each) for each in figures)
        return min(most, self.entries * len(figures)) if self._own else most

    def _new(self, device: int, trace: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """Returns the entries from the last one on that was sent."""
        before = self._newest.get(device, 0)
        first = next((at for at in range(len(trace), 0, -1) if trace[at - 1].get("time_us", 0) < before), 0)
        if trace:
            self._newest[device] = trace[-1].get("time_us", 0)
        return trace[first:]


def is_on(torch: Any) -> bool:
    """Checks whether a history is recorded."""
    ask = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    return bool(ask()) if ask else False


def imports_compiler(torch: Any) -> bool:
    """Checks whether a snapshot with call stacks would import torch's compiler, or wait for a thread that does."""
    if "_inductor" not in getattr(torch, "_lazy_modules", ()):
        return False
    found = sys.modules.get(COMPILER)
    return found is None or bool(getattr(getattr(found, "__spec__", None), "_initializing", False))


def import_compiler(torch: Any) -> None:
    """Imports torch's compiler, which takes some seconds. For a thread of the program, as if the program did."""
    if imports_compiler(torch):
        try:
            importlib.import_module(COMPILER)
        except Exception:
            # Its own dependencies may be missing.
            pass


def _without_traces(torch: Any) -> Dict[str, bool]:
    # torch 2.11 and newer.
    known = "include_traces" in inspect.signature(torch.cuda.memory_snapshot).parameters
    return {"include_traces": False} if known else {}
