"""Where the program `gpumem-tui` and the library `libgpumem_alloc.so` are."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Iterator, Optional

NAME = "gpumem-tui"
LIBRARY = "libgpumem_alloc.so"
# The folders beside that of the program in which the library can be: as in a copied folder, as in the wheel, and as cargo builds it.
NEAR = (".", "../lib", "../embed")


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


def find_library() -> str:
    """Returns the absolute path of the library: the one that GPUMEM_LIBRARY names, else that of this package, else one near the program.

    Raises RuntimeError if there is none.
    """
    named = os.environ.get("GPUMEM_LIBRARY")
    if named:
        return os.path.abspath(named)
    for path in _libraries():
        if os.path.isfile(path):
            return os.path.normpath(path)
    raise RuntimeError(
        f"gpumem: {LIBRARY} was not found: set GPUMEM_LIBRARY to its path (cargo build --profile embed -p gpumem-alloc-c builds it)"
    )


def _libraries() -> Iterator[str]:
    # `gpumem-tui run` has a package of its own, without libraries, beside the installed one.
    for folder in (os.path.dirname(__file__), *getattr(sys.modules.get("gpumem"), "__path__", ())):
        yield os.path.join(os.path.abspath(folder), "lib", LIBRARY)
    program = find()
    if program:
        for near in NEAR:
            yield os.path.join(os.path.dirname(os.path.realpath(program)), near, LIBRARY)


def _is_script(path: str) -> bool:
    # The wheel's command of that name is one, which would look for the program here again.
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
