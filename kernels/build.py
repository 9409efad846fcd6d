#!/usr/bin/env python3
"""Compiles every .cu beside this script to PTX, with no GPU and no CUDA toolkit.

    pip install nvidia-cuda-nvrtc-cu12==12.0.140
    python3 kernels/build.py            # rebuild the .ptx files and kernels.lock
    python3 kernels/build.py --check    # rebuild in memory, compare with what is committed, exit 1 if they differ

The PTX is of version 8.0 for compute_70: drivers from R525 on take it for every card from Volta on. The compiler's
version is pinned because another one writes other PTX for the same source.

kernels.lock ties source and PTX together for a machine that has no compiler: one line `NAME SOURCES PTX` a kernel,
the last two being 64-bit FNV-1a hashes of the .cu file followed by all .cuh files in order of name, and of the .ptx
file. The tests of gpumem-demo recompute them, so a source changed without a rebuild fails there.
"""

import argparse
import ctypes
import importlib.metadata
import importlib.util
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
WHEEL = "nvidia-cuda-nvrtc-cu12"
VERSION = "12.0.140"
# From C++11 on, this compiler writes forty unused constants into every file.
OPTIONS = [b"--gpu-architecture=compute_70", b"--std=c++03"]


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def load_nvrtc() -> ctypes.CDLL:
    hint = f"run: pip install {WHEEL}=={VERSION}"
    try:
        found = importlib.metadata.version(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"{WHEEL} is not installed; {hint}")
    if found != VERSION:
        sys.exit(f"{WHEEL} is {found}, the committed PTX is made by {VERSION}; {hint}")
    spec = importlib.util.find_spec("nvidia.cuda_nvrtc")
    folder = pathlib.Path(next(iter(spec.submodule_search_locations))) / "lib"
    # The compiler opens its builtins by name: they must be in the process before it looks for them.
    ctypes.CDLL(str(folder / "libnvrtc-builtins.so.12.0"), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(folder / "libnvrtc.so.12"))


def compile_ptx(nvrtc: ctypes.CDLL, source: pathlib.Path, headers: list[pathlib.Path]) -> bytes:
    def call(name: str, *args) -> None:
        code = getattr(nvrtc, name)(*args)
        if code != 0:
            size = ctypes.c_size_t()
            log = b""
            if program and nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)) == 0:
                buffer = ctypes.create_string_buffer(size.value)
                nvrtc.nvrtcGetProgramLog(program, buffer)
                log = buffer.value
            sys.exit(f"{source.name}: {name} failed with {code}\n{log.decode(errors='replace')}")

    program = ctypes.c_void_p()
    strings = lambda items: (ctypes.c_char_p * len(items))(*items)
    call(
        "nvrtcCreateProgram",
        ctypes.byref(program),
        source.read_bytes(),
        source.name.encode(),
        len(headers),
        strings([h.read_bytes() for h in headers]),
        strings([h.name.encode() for h in headers]),
    )
    call("nvrtcCompileProgram", program, len(OPTIONS), strings(OPTIONS))
    size = ctypes.c_size_t()
    call("nvrtcGetPTXSize", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    call("nvrtcGetPTX", program, buffer)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return buffer.value.strip() + b"\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check

    nvrtc = load_nvrtc()
    headers = sorted(HERE.glob("*.cuh"))
    wanted, lock = {}, []
    for source in sorted(HERE.glob("*.cu")):
        ptx = compile_ptx(nvrtc, source, headers)
        sources = source.read_bytes() + b"".join(h.read_bytes() for h in headers)
        wanted[source.with_suffix(".ptx")] = ptx
        lock.append(f"{source.stem} {fnv1a(sources):016x} {fnv1a(ptx):016x}\n")
    wanted[HERE / "kernels.lock"] = "".join(lock).encode()

    stale = [path for path, data in wanted.items() if not path.exists() or path.read_bytes() != data]
    stale += [path for path in HERE.glob("*.ptx") if path not in wanted]
    if check:
        for path in stale:
            print(f"{path.name} is not what its source compiles to")
        sys.exit(1 if stale else 0)
    for path in stale:
        if path in wanted:
            path.write_bytes(wanted[path])
            print(f"wrote {path.name}")
        else:
            path.unlink()
            print(f"removed {path.name}, which has no source")


if __name__ == "__main__":
    main()
