"""What this process is called: its program, its job and its ranks."""

from __future__ import annotations

import os
import re
import sys
from typing import Dict, List, Optional, Union

MAX_NAME = 120
# Console scripts have the subcommand as their first argument: "vllm serve".
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_MAX_RANK = 1 << 31


def clean(text: str) -> str:
    """Returns printable text of at most MAX_NAME characters, which UTF-8 can encode."""
    text = text.encode("utf-8", "replace").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else " " for c in text[:MAX_NAME]).strip()


def program(argv: List[str], module: Optional[str]) -> str:
    """Returns the name of a program from its arguments, and from the module that runs as `python -m`, if there is one."""
    if module:
        return clean(module[: -len(".__main__")] if module.endswith(".__main__") else module)
    first = argv[0] if argv else ""
    if first in ("-c", ""):
        return "python -c" if first else "python"
    name = os.path.basename(first)
    second = argv[1] if len(argv) > 1 else ""
    if "." not in name and _SUBCOMMAND.fullmatch(second):
        name += " " + second
    return clean(name)


def running() -> str:
    """Returns the name of this process's program."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return program(list(getattr(sys, "argv", [])), getattr(spec, "name", None))


def ranks(environment: Dict[str, str]) -> Dict[str, Optional[int]]:
    """Returns the ranks that launchers of PyTorch set, under their names in lower case. None: not set, or no number."""
    found: Dict[str, Optional[int]] = {}
    for name in _RANKS:
        text = environment.get(name, "")
        number = int(text) if text.isdecimal() and len(text) < 12 else _MAX_RANK
        found[name.lower()] = number if number < _MAX_RANK else None
    return found


def hello(torch_version: str, torch_folder: str) -> Dict[str, Union[str, int, None]]:
    """Returns the first message to the publisher process."""
    environment = dict(os.environ)
    return {
        "type": "hello",
        "version": 1,
        "pid": os.getpid(),
        "program": running(),
        "job": clean(environment.get("GPUMEM_JOB", "")),
        **ranks(environment),
        "torch": clean(torch_version),
        "torch_folder": torch_folder,
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
    }
