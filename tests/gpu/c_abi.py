#!/usr/bin/env python3
"""The programs and comparisons of c_abi.sh.

    c_abi.py compare DIR              runs the others, with each library that can be imported, and compares
    c_abi.py torch|graphs|limits|pool|cupy|rmm [DIR]
                                      the program: with the library's own allocator, or with DIR/libgpumem_alloc.so

A program prints one JSON line: its results, its peak of reserved and requested bytes.
"""

import importlib.util
import json
import random
import subprocess
import sys

from figures import dashboard, peaks
from torch_graphs import graphs_program
from torch_limits import limits_program
from torch_programs import pool_program, torch_program

MIB = 1 << 20


def cupy_program(folder):
    """Arrays of random sizes on two streams."""
    import cupy

    library = None
    if folder:
        import cupy_cfunction

        library = cupy_cfunction.install(f"{folder}/libgpumem_alloc.so")
    sizes = random.Random(2)
    generator = cupy.random.RandomState(2)
    streams = [cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)]
    sums, kept = [], []
    for step in range(400):
        with streams[step % 2]:
            a = generator.uniform(size=(sizes.randint(16, 2000), sizes.randint(16, 2000))).astype(cupy.float32)
            b = cupy.sort(cupy.tanh(a * 2) + 1, axis=1)
            sums.append(float(b.sum() + (a @ a.T).max()))
            kept.append((b, streams[step % 2]))
            if len(kept) > 30:
                kept.pop(sizes.randrange(30))
    for stream in streams:
        stream.synchronize()
    result = {"losses": [value.hex() for value in sums]}
    if library:
        result |= peaks(library) | {"dashboard": dashboard(library, folder), "errors": library.gpumem_error_count()}
    else:
        result |= {"reserved": cupy.get_default_memory_pool().total_bytes(), "requested": None}
    return result


def rmm_program(folder):
    """Buffers of random sizes that are filled and read back."""
    import rmm

    library = None
    if folder:
        import rmm_callback

        library = rmm_callback.install(f"{folder}/libgpumem_alloc.so")
    else:
        rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 28))
    sizes = random.Random(3)
    kept, sums = [], []
    for step in range(400):
        data = bytes([step % 251]) * sizes.randint(1, 4 * MIB)
        kept.append(rmm.DeviceBuffer.to_device(data))
        if len(kept) > 30:
            sums.append(sum(kept.pop(sizes.randrange(30)).tobytes()))
    result = {"losses": sums, "reserved": None, "requested": None}
    if library:
        result |= peaks(library) | {"dashboard": dashboard(library, folder), "errors": library.gpumem_error_count()}
    return result


PROGRAMS = {
    "torch": torch_program,
    "graphs": graphs_program,
    "limits": limits_program,
    "pool": pool_program,
    "cupy": cupy_program,
    "rmm": rmm_program,
}
# What a program imports, if that is not called as the program is.
IMPORTS = {"graphs": "torch", "limits": "torch", "pool": "torch"}


def compare(folder):
    failed = False
    for name in PROGRAMS:
        if importlib.util.find_spec(IMPORTS.get(name, name)) is None:
            print(f"SKIPPED {name}: this Python cannot import it")
            continue
        results = {}
        for allocator, where in (("its own", []), ("gpumem", [folder])):
            run = subprocess.run([sys.executable, __file__, name, *where], capture_output=True, text=True)
            if run.returncode != 0:
                print(f"FAIL {name} with {allocator} allocator (exit {run.returncode}):\n{run.stdout}{run.stderr}")
                failed = True
                break
            results[allocator] = json.loads(run.stdout.splitlines()[-1])
            results[allocator]["stderr"] = run.stderr
        if len(results) == 2:
            failed |= not agree(name, results["its own"], results["gpumem"])
    sys.exit(failed)


def agree(name, own, ours):
    same = own["losses"] == ours["losses"] and own.get("weights") == ours.get("weights")
    # Only what was refused on purpose may be heard of.
    silent = [line for line in ours["stderr"].splitlines() if "gpumem" not in line] == own["stderr"].splitlines()
    print(f"{'PASS' if same else 'FAIL'} {name}: {len(own['losses'])} results equal to the bit")
    print(f"{'PASS' if silent else 'FAIL'} {name}: as quiet as with its own allocator")
    if not silent:
        print(ours["stderr"], own["stderr"], sep="\n--- its own:\n")
    print(f"{'PASS' if ours['errors'] == 0 else 'FAIL'} {name}: {ours['errors']} calls were refused")
    for line in ours.get("caught", ()):
        print(f"     caught: {line}")
    print(f"     dashboard: {ours['dashboard']}")
    size = lambda bytes: f"{bytes / MIB:.0f} MiB" if bytes else "unknown"
    for who, result in (("its own", own), ("gpumem", ours)):
        took = f", {result['seconds']:.2f} s" if "seconds" in result else ""
        print(f"     {who:<8} peak reserved {size(result['reserved'])}, peak requested {size(result['requested'])}{took}")
    return same and silent and ours["errors"] == 0


def main():
    program, *folder = sys.argv[1:]
    if program == "compare":
        compare(*folder)
    print(json.dumps(PROGRAMS[program](folder[0] if folder else None)))


if __name__ == "__main__":
    main()
