#!/usr/bin/env python3
"""Runs an unchanged script, and every Python that it starts, with PyTorch and CuPy on gpumem's allocator.

    cargo build --profile embed -p gpumem-alloc-c
    python3 demo/python/run.py target/embed/libgpumem_alloc.so train.py --its arguments
    python3 demo/python/run.py target/embed/libgpumem_alloc.so -m torch.distributed.run --nproc-per-node 8 train.py

Run gpumem-tui beside it to see its blocks. A problem with the library or with GPUMEM_ALLOC_CONF is an error before the script
begins; otherwise a line on stderr says that the allocator is used (not with GPUMEM_QUIET=1). It works by PYTHONPATH and
GPUMEM_PYTHON, which every_python/sitecustomize.py reads. Needs Python 3.10.
"""

import contextlib
import os
import subprocess
import sys

# Offsets in an ELF file of its word size and byte order, its type and its machine: elf.h.
ELF_CLASS, ELF_DATA, ELF_TYPE, ELF_MACHINE, ELF_READ = 4, 5, 16, 18, 20
SHARED_OBJECT = 3
MACHINES = {3: "x86", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86-64", 183: "aarch64", 243: "riscv", 258: "loongarch"}

# This runs in a separate process, because loading a library may do anything. It ends with _exit, so that nothing runs at exit. The
# answer is the last line on stderr.
PROBE = """
import ctypes, os, sys
def end(why):
    sys.stderr.write("\\n" + why)
    sys.stderr.flush()
    os._exit(1 if why else 0)
path = sys.argv[1]
try:
    library = ctypes.CDLL(path)
except OSError as error:
    end(str(error) if path in str(error) else f"{path}: {error}")
lacks = [name for name in ("gpumem_alloc", "gpumem_torch_alloc", "gpumem_adopt_torch", "gpumem_conf_error") if not hasattr(library, name)]
if lacks:
    end(f"{path} is not gpumem's library, or an old one: it lacks {lacks[0]}")
text = ctypes.create_string_buffer(4096)
library.gpumem_conf_error(text, ctypes.c_size_t(4096))
end(text.value.decode())
"""
PATIENCE_S = 60


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
    # The dynamic loader finds a library by its name alone.
    if os.path.exists(path) or os.sep in path:
        path = os.path.abspath(path)
        why = wrong_file(path)
        if why:
            sys.exit(f"run.py: {why}")
    why = wrong_library(path)
    if why:
        sys.exit(f"run.py: {why}")
    say_on(path)
    os.environ["GPUMEM_PYTHON"] = path
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (every, os.environ.get("PYTHONPATH"))))
    options = [option for option in sys.orig_argv[1 : -len(sys.argv)] if option != "-m"]
    os.execv(sys.executable, [sys.executable, *options, *arguments])


def wrong_file(path: str) -> str | None:
    """Returns why a file cannot be the library, from its first bytes."""
    if os.path.isdir(path):
        return f"{path} is a folder: name the library, libgpumem_alloc.so"
    try:
        # Opening a pipe would block.
        if os.path.exists(path) and not os.path.isfile(path):
            return f"{path} is not a file"
        found = elf(path)
    except OSError as error:
        return f"{path}: cannot open it: {error.strerror}"
    if found is None:
        return f"{path} is not a shared library"
    kind, machine = found
    with contextlib.suppress(OSError):
        running = elf("/proc/self/exe")
        if running and running[1] != machine:
            return f"{path} is a library for {machine}, and this Python runs on {running[1]}"
    return None if kind == SHARED_OBJECT else f"{path} is not a shared library"


def elf(path: str) -> tuple[int, str] | None:
    """Returns the type of an ELF file and its machine; None for another file."""
    with open(path, "rb") as file:
        head = file.read(ELF_READ)
    if len(head) < ELF_READ or not head.startswith(b"\x7fELF"):
        return None
    order = "big" if head[ELF_DATA] == 2 else "little"
    kind = int.from_bytes(head[ELF_TYPE:ELF_MACHINE], order)
    number = int.from_bytes(head[ELF_MACHINE:], order)
    machine = MACHINES.get(number, f"machine {number}")
    bits = {1: 32, 2: 64}.get(head[ELF_CLASS], "other")
    return kind, f"{machine} ({bits} bits, {order}-endian)"


def wrong_library(path: str) -> str | None:
    """Returns why a library cannot be used, or what is wrong with its options."""
    try:
        probe = subprocess.run(
            [sys.executable, "-I", "-S", "-c", PROBE, path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        return f"{path} is not gpumem's library: it was not loaded within {PATIENCE_S} s"
    if probe.returncode == 0:
        return None
    lines = probe.stderr.decode(errors="replace").splitlines()
    if probe.returncode == 1 and lines:
        return lines[-1]
    how = f"signal {-probe.returncode}" if probe.returncode < 0 else f"exit code {probe.returncode}"
    return f"{path} is not gpumem's library, or a broken one: a process that loads it ends with {how}"


def say_on(path: str) -> None:
    """Prints the line once per command, even if it starts more Pythons."""
    if os.environ.get("GPUMEM_QUIET", "0") not in ("", "0") or sys.stderr is None:
        return
    told = " ".join(os.environ.get("GPUMEM_ALLOC_CONF", "").split())
    told = told if told.isprintable() else ascii(told)
    options = f"GPUMEM_ALLOC_CONF={told}" if told else "default options"
    # The script runs even if stderr is closed.
    with contextlib.suppress(OSError):
        print(f"gpumem: on for PyTorch and CuPy: {path}, {options}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
