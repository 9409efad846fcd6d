#!/usr/bin/env python3
"""A script as it is, with PyTorch and CuPy on gpumem's allocator, and so is whatever Python it starts.

    cargo build --profile embed -p gpumem-alloc-c
    python3 demo/python/run.py target/embed/libgpumem_alloc.so train.py --its arguments
    python3 demo/python/run.py target/embed/libgpumem_alloc.so -m torch.distributed.run --nproc-per-node 8 train.py

Run gpumem-tui beside it to see its blocks. It works by PYTHONPATH and GPUMEM_PYTHON, which every_python/sitecustomize.py reads. Needs
Python 3.10.
"""

import os
import sys


def main() -> None:
    path, *arguments = sys.argv[1:] or [None]
    if not arguments or arguments == ["-m"]:
        sys.exit(__doc__)
    every = os.path.join(os.path.dirname(os.path.realpath(__file__)), "every_python")
    if os.pathsep in every:
        sys.exit(f"run.py: {every} cannot be in PYTHONPATH, whose folders are parted by {os.pathsep}")
    if arguments[0].startswith("-") and arguments[0] not in ("-m", "-c"):
        sys.exit("run.py: options of Python go before run.py")
    if sys.flags.ignore_environment or sys.flags.no_site:
        sys.exit("run.py: Python's options -E, -I and -S keep it from what has modules use the library")
    # A name alone is for the dynamic loader to find.
    os.environ["GPUMEM_PYTHON"] = os.path.abspath(path) if os.path.exists(path) else path
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (every, os.environ.get("PYTHONPATH"))))
    options = [option for option in sys.orig_argv[1 : -len(sys.argv)] if option != "-m"]
    os.execv(sys.executable, [sys.executable, *options, *arguments])


if __name__ == "__main__":
    main()
