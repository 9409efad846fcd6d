"""Where the program `gpumem-tui` is."""

from __future__ import annotations

import os
import shutil
from typing import Optional

NAME = "gpumem-tui"


def find() -> Optional[str]:
    """Returns the absolute path of the program: the one that GPUMEM_TUI names, else that of this package, else that on PATH."""
    named = os.environ.get("GPUMEM_TUI")
    if named:
        return os.path.abspath(named) if _runs(named) else None
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", NAME)
    if _runs(own):
        return own
    found = shutil.which(NAME)
    return os.path.abspath(found) if found and not _is_script(found) else None


def _is_script(path: str) -> bool:
    # The wheel's command of that name is one, which would look for the program here again.
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
