"""`python -m gpumem run train.py ARGUMENTS` runs a script or a module (`-m NAME`) and publishes it and the Pythons that it starts.

Any other arguments are those of `gpumem-tui`: without any, `python -m gpumem` is the dashboard.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Callable, List

from . import _binary


def command(binary: str, arguments: List[str]) -> List[str]:
    """Returns the command to run for these arguments."""
    if arguments[:1] != ["run"]:
        return [binary, *arguments]
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    script = arguments[2:] if arguments[1:2] == ["--"] else arguments[1:]
    return [binary, "run", "--", sys.executable, *options, *script]


def main() -> None:
    """`python -m gpumem`."""
    if sys.argv[1:] in (["run"], ["run", "--"]):
        sys.exit("gpumem: name a script: python -m gpumem run train.py")
    _become(lambda binary: command(binary, sys.argv[1:]))


def program() -> None:
    """The command `gpumem-tui` of the wheel: the program that is in it, with the same arguments."""
    _become(lambda binary: [binary, *sys.argv[1:]])


def _become(command: Callable[[str], List[str]]) -> None:
    binary = _binary.find()
    if binary is None:
        sys.exit("gpumem: the program gpumem-tui was not found: set GPUMEM_TUI to its path")
    try:
        os.execv(binary, command(binary))
    except OSError as error:
        sys.exit(f"gpumem: cannot run {binary}: {error.strerror}")


if __name__ == "__main__":
    main()
