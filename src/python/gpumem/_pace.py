"""How often to read figures. Costs and intervals are in seconds; a cost is the thread's own CPU time."""

from __future__ import annotations

from collections import deque
from typing import Deque, Optional, Tuple

DEFAULT_S = 1.0
SHORTEST_S, LONGEST_S = 0.1, 60.0
# The share of the time that reading stats may take.
STATS_SHARE = 0.0005
# So many readings are needed to know what one costs.
READINGS = 3
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


class Stats:
    """When stats are read again. The cheapest of the last readings counts, so that a slow one, such as the first, has no effect."""

    def __init__(self, wanted: float) -> None:
        self._wanted = wanted
        self._costs: Deque[float] = deque(maxlen=READINGS)

    def after(self, cost: float) -> float:
        """Returns the time until the next reading, after one of this cost."""
        self._costs.append(cost)
        if len(self._costs) < READINGS:
            return self._wanted
        return max(self._wanted, min(self._costs) / STATS_SHARE)


def block_map(cost: float) -> float:
    """Returns the time until a block map may be taken again, after one of this cost."""
    return max(SHORTEST_MAP_S, cost * MAP_FACTOR)
