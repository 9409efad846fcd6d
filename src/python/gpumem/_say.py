"""Lines on stderr. Each is written once per process."""

from __future__ import annotations

import sys
from typing import Set

_said: Set[str] = set()


def say(text: str) -> None:
    """Writes a line, unless it was written before. A closed stderr is no error."""
    if text in _said:
        return
    _said.add(text)
    try:
        if sys.stderr is not None:
            sys.stderr.write(f"gpumem: {text}\n")
            sys.stderr.flush()
    except Exception:
        # Nobody can be told.
        pass
