"""How often to read figures. Costs and intervals are in seconds; a cost is the thread's own CPU time."""

from __future__ import annotations

from typing import Optional, Tuple

DEFAULT_S = 1.0
SHORTEST_S, LONGEST_S = 0.1, 60.0
# The share of the time that reading stats may take.
STATS_SHARE = 0.0005
# A map may take 2 % of the time.
MAP_FACTOR = 50.0
SHORTEST_MAP_S = 1.0


def interval(text: Optional[str]) -> Tuple[float, Optional[str]]:
    """Reads GPUMEM_INTERVAL. Returns the interval, and a sentence if the text is not a valid one."""
    if not text:
        return DEFAULT_S, None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    # A NaN is not within bounds, either.
    if SHORTEST_S <= seconds <= LONGEST_S:
        return seconds, None
    return DEFAULT_S, f"GPUMEM_INTERVAL must be from {SHORTEST_S} to {LONGEST_S:.0f} seconds; {DEFAULT_S:.0f} is used"


def stats(wanted: float, cost: float) -> float:
    """Returns the time until stats are read again, after a reading of this cost."""
    return max(wanted, cost / STATS_SHARE)


def block_map(cost: float) -> float:
    """Returns the time until a block map may be taken again, after one of this cost."""
    return max(SHORTEST_MAP_S, cost * MAP_FACTOR)
