#!/usr/bin/env python3
"""The programs and comparisons of c_abi.sh.

    c_abi.py compare DIR              runs the others, with each library that can be imported, and compares
    c_abi.py settings DIR             what those of several streams reserve with each allocator's settings, and the time that they take
    c_abi.py PROGRAM [DIR]            one of PROGRAMS: with the library's own allocator, or with DIR/libgpumem_alloc.so

A program prints one JSON line: its results, its peak of reserved and requested bytes.
"""

import importlib.util
import json
import os
import random
import re
import subprocess
import sys

from figures import allocator_in, peaks, told
from torch_answers import answers_program
from torch_children import children_program
from torch_ends import PROGRAMS as ENDS
from torch_graphs import graphs_program
from torch_limits import limits_program
from torch_programs import pool_program, torch_program
from torch_sharing import sharing_program
from torch_streams import PROGRAMS as STREAMS
from torch_trees import trees_program

MIB = 1 << 20


def cupy_program(folder):
    """Arrays of random sizes on two streams."""
    import cupy

    allocator = allocator_in(folder) if folder else None
    if allocator:
        cupy.cuda.set_allocator(allocator.malloc)
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
    if allocator:
        result |= peaks(allocator)
    else:
        result |= {"reserved": cupy.get_default_memory_pool().total_bytes(), "requested": None}
    result["losses"] += [*cupy_streams(cupy), *cupy_pool(cupy), *cupy_limits(cupy, allocator)]
    return result | (told(allocator, folder) if allocator else {})


def cupy_streams(cupy):
    """More streams than are kept apart, which come and go, and arrays that outlive theirs."""
    kept = []
    for step in range(5000):
        with cupy.cuda.Stream(non_blocking=step % 2 == 0) as stream:
            kept.append(cupy.full(1000 + step % 7 * 30_000, step, dtype=cupy.int32))
            stream.synchronize()
        if len(kept) > 9:
            yield int(kept.pop(step % 9).sum())


def cupy_pool(cupy):
    """What scripts ask the default pool."""
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.used_bytes()
    kept = [cupy.empty(number << 19, dtype=cupy.uint8) for number in range(1, 20)]
    yield pool.used_bytes() - before
    del kept[::2]
    yield pool.used_bytes() - before
    yield pool.total_bytes() == pool.used_bytes() + pool.free_bytes() and pool.n_free_blocks() > 0
    cupy.cuda.Device().synchronize()
    cached = pool.free_bytes()
    pool.free_all_blocks()
    yield pool.free_bytes() < cached
    yield pool.get_limit()
    pool.set_limit(size=64 << 20)
    try:
        cupy.empty(1 << 30, dtype=cupy.uint8)
    except cupy.cuda.memory.OutOfMemoryError:
        yield pool.get_limit()
    pool.set_limit(size=0)
    yield pool.get_limit(), cupy.empty(1 << 30, dtype=cupy.uint8).nbytes


def cupy_limits(cupy, allocator):
    """What cannot be had is CuPy's own exception, and a pool of CuPy's gives back what it keeps before."""
    try:
        cupy.empty(1 << 45, dtype=cupy.uint8)
        raise AssertionError("32 TiB were handed out")
    except cupy.cuda.memory.OutOfMemoryError as error:
        # Where there is no pool CuPy has this one.
        yield isinstance(error, cupy.cuda.runtime.CUDARuntimeError) == bool(allocator)
    pool = cupy.cuda.MemoryPool()
    if allocator:
        allocator.library.gpumem_memory_fraction(4096 * MIB / cupy.cuda.Device().mem_info[1], 0)
        pool = cupy.cuda.MemoryPool(cupy.cuda.get_allocator())
    with cupy.cuda.using_allocator(pool.malloc):
        small = [cupy.ones(200 * MIB, dtype=cupy.uint8) for _ in range(18)]
        del small
        yield int(cupy.ones(3500 * MIB, dtype=cupy.uint8)[-1])


def rmm_program(folder):
    """Buffers of random sizes that are filled and read back."""
    import rmm

    allocator = allocator_in(folder) if folder else None
    if allocator:
        rmm.mr.set_current_device_resource(allocator.rmm())
    else:
        rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 28))
    sizes = random.Random(3)
    kept, sums = [], []
    for step in range(400):
        data = bytes([step % 251]) * sizes.randint(1, 4 * MIB)
        kept.append(rmm.DeviceBuffer.to_device(data))
        if len(kept) > 30:
            sums.append(sum(kept.pop(sizes.randrange(30)).tobytes()))
    sums += [*rmm_streams(rmm), *rmm_limits(rmm, allocator)]
    result = {"losses": sums, "reserved": None, "requested": None}
    return result | (peaks(allocator) | told(allocator, folder) if allocator else {})


def rmm_streams(rmm):
    """Streams that come and go."""
    for step in range(300):
        stream = rmm.pylibrmm.stream.Stream()
        buffer = rmm.DeviceBuffer.to_device(bytes([step % 251]) * (100_000 + step * 5000), stream)
        yield sum(buffer.tobytes(stream))
        del buffer, stream
        rmm.DeviceBuffer(size=20 * MIB)


def rmm_limits(rmm, allocator):
    """Who makes room when there is none is asked to, and may give up."""
    asked = []
    below = rmm.mr.get_current_device_resource() if allocator else rmm.mr.CudaMemoryResource()
    resource = rmm.mr.FailureCallbackResourceAdaptor(below, lambda size: asked.append(size) or len(asked) < 3)
    try:
        resource.allocate(1 << 45)
    except MemoryError:
        yield from asked


PROGRAMS = {
    "torch": torch_program,
    "answers": answers_program,
    "children": children_program,
    "graphs": graphs_program,
    "limits": limits_program,
    "trees": trees_program,
    "sharing": sharing_program,
    "pool": pool_program,
    **STREAMS,
    **ENDS,
    "cupy": cupy_program,
    "rmm": rmm_program,
}
# What a program imports, if that is not called as the program is.
IMPORTS = {name: "torch" for name in ("answers", "children", "graphs", "limits", "pool", "trees", "sharing", *STREAMS, *ENDS)}


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


# Allocators, and what is set for them.
SETTINGS = {
    "PyTorch": (False, {}),
    "PyTorch, expandable_segments:True": (False, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "gpumem": (True, {}),
    "gpumem, cross_stream_reuse:on": (True, {"GPUMEM_ALLOC_CONF": "cross_stream_reuse:on"}),
}


def settings(folder):
    for name in STREAMS:
        for which, (is_ours, environment) in SETTINGS.items():
            command = [sys.executable, __file__, name, *[folder] * is_ours]
            run = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
            if run.returncode != 0:
                print(f"FAIL {name}, {which}:\n{run.stdout}{run.stderr}")
                continue
            result = json.loads(run.stdout.splitlines()[-1])
            reserved, requested = (result[figure] / MIB for figure in ("reserved", "requested"))
            print(f"{name:<14} {which:<36} reserved {reserved:8,.0f} MiB, requested {requested:8,.0f} MiB, {result['seconds']:.2f} s")


def agree(name, own, ours):
    same = own["losses"] == ours["losses"] and own.get("weights") == ours.get("weights")
    # Only what was refused on purpose may be heard of. New versions say so, too, and all of them when something was said.
    refusals = ("gpumem", "CUDACachingAllocator.cpp")
    said = lambda one: [re.sub("[0-9]+", "", line) for line in one["stderr"].splitlines() if not any(word in line for word in refusals)]
    silent = said(ours) == said(own)
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
    if program == "settings":
        return settings(*folder)
    print(json.dumps(PROGRAMS[program](folder[0] if folder else None)))


if __name__ == "__main__":
    main()
