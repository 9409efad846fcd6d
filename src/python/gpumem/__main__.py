"""`python -m gpumem run train.py ARGUMENTS` runs a script or a module (`-m NAME`) and publishes it and the Pythons that it starts.
`python -m gpumem run --allocator [--library PATH] train.py ARGUMENTS` puts them on gpumem's allocator.

Any other arguments are those of `gpumem-tui`: without any, `python -m gpumem` is the dashboard.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Callable, List, Optional, Tuple

from . import _binary


def command(binary: str, arguments: List[str]) -> List[str]:
    """Returns the command to run for these arguments."""
    if arguments[:1] != ["run"]:
        return [binary, *arguments]
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    ours, script = split(arguments[1:])
    return [binary, "run", *ours, "--", sys.executable, *options, *script]


def split(arguments: List[str]) -> Tuple[List[str], List[str]]:
    """Splits the arguments of `run` into options of gpumem-tui, and the script with its arguments."""
    count = 0
    while arguments[count : count + 1] and arguments[count].split("=")[0] in ("--allocator", "--library"):
        count += 2 if arguments[count] == "--library" else 1
    ours, script = arguments[:count], arguments[count:]
    return ours, script[1:] if script[:1] == ["--"] else script


def wrong(arguments: List[str]) -> Optional[str]:
    """Returns what is wrong with the arguments of `run`."""
    ours, script = split(arguments)
    if not script or script == ["-m"]:
        return "name a script: python -m gpumem run train.py"
    if script[0].startswith("-") and script[0] not in ("-m", "-c"):
        return f"{script[0]}: options of Python go before -m gpumem"
    if ours and (sys.flags.ignore_environment or sys.flags.no_site):
        return "Python's options -E, -I and -S keep scripts from the allocator"
    return None


def main() -> None:
    """`python -m gpumem`."""
    why = wrong(sys.argv[2:]) if sys.argv[1:2] == ["run"] else None
    if why:
        print(f"gpumem: {why}", file=sys.stderr)
        sys.exit(2)
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
