#!/usr/bin/env python3
"""Builds the wheel `gpumem-torch`, which carries the program and the library.

    pip install ziglang cargo-zigbuild         # once
    python3 src/python/build.py --zigbuild

has cargo-zigbuild build both against glibc 2.28, in about seven minutes on two cores. Without --zigbuild it takes what cargo has built
before, for --target or for this machine. That is refused if it needs a newer glibc, unless --any-glibc says that the wheel is for this
machine only.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from typing import Dict, List, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NAME = "gpumem_torch"
# The glibc of the tag manylinux_2_28.
GLIBC = (2, 28)
TARGET = "x86_64-unknown-linux-gnu"
# What cargo builds.
BUILDS = (["--release", "-p", "gpumem-tui"], ["--profile", "embed", "-p", "gpumem-alloc-c"])
# The earliest time that a zip file can have, so that equal contents make equal wheels.
TIME = (1980, 1, 1, 0, 0, 0)
PLAIN, EXECUTABLE = 0o100644, 0o100755

METADATA = """\
Metadata-Version: 2.1
Name: gpumem-torch
Version: {version}
Summary: Shows where the GPU memory of PyTorch is
License: MIT OR Apache-2.0
Requires-Python: >=3.9
Description-Content-Type: text/plain

    import gpumem
    gpumem.publish()

publishes the memory of PyTorch's own CUDA allocator. The program gpumem-tui, which is in this wheel, shows it in a terminal.

    torch.cuda.memory.change_current_allocator(gpumem.allocator)

has PyTorch use gpumem's allocator, which takes less memory. `python -m gpumem run --allocator train.py` does so for a script as it is.
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: gpumem
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""
ENTRY_POINTS = """\
[console_scripts]
gpumem-tui = gpumem.__main__:program
"""


def version() -> str:
    """Returns the version of the workspace."""
    with open(os.path.join(ROOT, "Cargo.toml")) as file:
        found = re.search(r'^\[workspace\.package\]\nversion = "([^"]+)"', file.read(), re.MULTILINE)
    if found is None:
        sys.exit("build.py: Cargo.toml has no version of the workspace")
    return found.group(1)


def needs_glibc(binary: bytes) -> Tuple[int, int]:
    """Returns the newest version of glibc whose symbols an ELF file names. The names end with a zero byte."""
    found = re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)", binary)
    return max(((int(major), int(minor)) for major, minor in found), default=(0, 0))


def zigbuild() -> None:
    """Builds the program and the library for that version of glibc."""
    glibc = "{}.{}".format(*GLIBC)
    for what in BUILDS:
        command = ["cargo", "zigbuild", "--locked", *what, "--target", f"{TARGET}.{glibc}"]
        if subprocess.run(command, cwd=ROOT).returncode != 0:
            sys.exit("build.py: cargo zigbuild failed: `pip install ziglang cargo-zigbuild` installs it")


def native(target: str, any_glibc: bool) -> Dict[str, bytes]:
    """Returns the program and the library under their names in the wheel."""
    built = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), target)
    files = {}
    for path, name in (("release/gpumem-tui", "gpumem/bin/gpumem-tui"), ("embed/libgpumem_alloc.so", "gpumem/lib/libgpumem_alloc.so")):
        path = os.path.join(built, path)
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError as error:
            sys.exit(f"build.py: cannot read {path}: {error.strerror}: build it first")
        needs = needs_glibc(content)
        if needs > GLIBC and not any_glibc:
            sys.exit(
                "build.py: {} needs glibc {}.{}, and the wheel is for {}.{}: pass --zigbuild, or --any-glibc".format(
                    path, *needs, *GLIBC
                )
            )
        files[name] = content
    return files


def package() -> Dict[str, bytes]:
    """Returns the files of the package."""
    folder = os.path.join(HERE, "gpumem")
    files = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py") or name == "py.typed":
            with open(os.path.join(folder, name), "rb") as file:
                files[f"gpumem/{name}"] = file.read()
    return files


def about(info: str, platform: str) -> Dict[str, bytes]:
    """Returns the files about the distribution, without RECORD."""
    texts = {"METADATA": METADATA.format(version=version()), "WHEEL": WHEEL.format(platform=platform), "entry_points.txt": ENTRY_POINTS}
    files = {f"{info}/{name}": text.encode() for name, text in texts.items()}
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        with open(os.path.join(ROOT, name), "rb") as file:
            files[f"{info}/{name}"] = file.read()
    return files


def record(files: Dict[str, bytes], name: str) -> bytes:
    """Returns RECORD, which has a hash and a size of every other file."""
    lines: List[str] = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}\n")
    return "".join(lines + [f"{name},,\n"]).encode()


def write(path: str, files: Dict[str, bytes]) -> None:
    """Writes a zip file with these files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (EXECUTABLE if name.startswith("gpumem/bin/") else PLAIN) << 16
            wheel.writestr(entry, content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zigbuild", action="store_true", help="build both first, with cargo-zigbuild")
    parser.add_argument("--target", default="", help="the target triple that cargo built for; the folder below target/")
    parser.add_argument("--any-glibc", action="store_true", help="do not check the version of glibc: the tag is that of this machine")
    parser.add_argument("--out", default=os.path.join(ROOT, "target", "wheel"), help="the folder for the wheel")
    arguments = parser.parse_args()
    if os.uname().machine != "x86_64":
        sys.exit("build.py: the wheel is for x86-64")
    if arguments.zigbuild:
        zigbuild()
        arguments.target = TARGET
    platform = "linux_x86_64" if arguments.any_glibc else "manylinux_{}_{}_x86_64".format(*GLIBC)
    info = f"{NAME}-{version()}.dist-info"
    files = {**package(), **native(arguments.target, arguments.any_glibc), **about(info, platform)}
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD")
    os.makedirs(arguments.out, exist_ok=True)
    path = os.path.join(arguments.out, f"{NAME}-{version()}-py3-none-{platform}.whl")
    write(path, files)
    print(path)


if __name__ == "__main__":
    main()
