#!/usr/bin/env python3
"""Recorded programs in PyTorch's caching allocator, with its defaults and with expandable segments, and in ours, in turn, on one GPU: memory
and time.

    against_torch.py GPUMEM_TUI TRACE...            the table of src/alloc/README.md: GPUMEM_TUI is the built program, TRACE a CSV or .csv.gz
    against_torch.py --rounds 4 --passes 6 ...      so many runs of each, in turn (the best counts), of so many passes
    against_torch.py --gpu 1 ...                    on another card

PyTorch's allocator is called from C++, without Python or tensors in between, and without its history; ours is `gpumem-tui replay`, once
publishing and once not. Each run is a process of its own. Needs PyTorch with CUDA and g++.

Of each program: peak reserved / peak requested; milliseconds in the allocator in the first pass, and in the best later one, ours publishing
and not; and the driver calls of ours, in the first pass and the fewest of a later one. "expand" is PyTorch's expandable_segments:True.
"""

import argparse
import csv
import ctypes
import gzip
import json
import os
import subprocess
import sys
import tempfile

SOURCE = r"""
#include <chrono>
#include <cstdint>
#include <vector>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

namespace allocator = c10::cuda::CUDACachingAllocator;

// One pass: milliseconds in the allocator. `slot` is what an operation allocates or frees; a free has no bytes.
extern "C" double replay(size_t count, const uint32_t* slot, const uint64_t* bytes, const uint8_t* stream, size_t slots, size_t streams) {
    static std::vector<cudaStream_t> handles;
    while (handles.size() < streams)
        handles.push_back(handles.empty() ? c10::cuda::getDefaultCUDAStream().stream() : c10::cuda::getStreamFromPool().stream());
    auto* its = allocator::get();
    std::vector<void*> held(slots, nullptr);
    const auto began = std::chrono::steady_clock::now();
    for (size_t i = 0; i < count; i++) {
        void*& place = held[slot[i]];
        if (bytes[i]) {
            place = its->raw_alloc_with_stream(bytes[i], handles[stream[i]]);
        } else {
            its->raw_delete(place);
            place = nullptr;
        }
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    for (void* place : held)
        if (place) its->raw_delete(place);
    return took.count();
}

extern "C" uint64_t peak_reserved() {
    return allocator::getDeviceStats(0).reserved_bytes[0].peak;
}
"""


def build(folder, text=SOURCE):
    """The library with the loop above, or with other text, and nothing but compiler and PyTorch's own headers."""
    from torch.utils import cpp_extension

    source, library = f"{folder}/timed.cpp", f"{folder}/timed.so"
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    includes = [f"-I{path}" for path in cpp_extension.include_paths(device_type="cuda")]
    libraries = [f"-L{path}" for path in cpp_extension.library_paths(device_type="cuda")]
    flags = ["-O3", "-std=c++20", "-shared", "-fPIC", "-w"]
    subprocess.run(["g++", *flags, source, "-o", library, *includes, *libraries, "-lc10", "-lc10_cuda"], check=True)
    return library


def operations(path):
    """Slots, bytes (0 is a free) and streams of a trace, how many of both there are, and the most that is requested at a time."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    slots, vacant, streams, held = {}, [], {}, {}
    columns = [], [], []
    now = peak = used = 0
    for row in rows:
        if not row or row[0] not in ("a", "f"):
            continue
        name = row[1]
        if row[0] == "a" and int(row[2]) == 0 or row[0] == "f" and name not in slots:
            # Nothing is nobody's.
            continue
        if row[0] == "a":
            if not vacant:
                vacant.append(used)
                used += 1
            size, stream = int(row[2]), streams.setdefault(row[3] if len(row) > 3 else "0", len(streams))
            slots[name], held[name] = vacant.pop(), size
            values = slots[name], size, stream
            now += size
            peak = max(peak, now)
        else:
            values = slots.pop(name), 0, 0
            vacant.append(values[0])
            now -= held.pop(name)
        for column, value in zip(columns, values):
            column.append(value)
    return columns, used, len(streams), peak


def torchs(library, path, passes):
    """What PyTorch's allocator takes, in this process."""
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.empty_cache()
    loop = ctypes.CDLL(library)
    loop.replay.restype, loop.peak_reserved.restype = ctypes.c_double, ctypes.c_uint64
    (slot, size, stream), slots, streams, peak = operations(path)
    count = len(slot)
    columns = (ctypes.c_uint32 * count)(*slot), (ctypes.c_uint64 * count)(*size), (ctypes.c_uint8 * count)(*stream)
    took, reserved = [], 0
    for number in range(passes):
        took.append(loop.replay(ctypes.c_size_t(count), *columns, ctypes.c_size_t(slots), ctypes.c_size_t(streams)))
        if number == 0:
            reserved = loop.peak_reserved()
    print(json.dumps({"ms": took, "ratio": reserved / peak, "version": torch.__version__}))


def ours(tui, gpu, path, passes, publishing):
    """What ours takes."""
    command = [tui, "replay", path, "--device", f"cuda:{gpu}", "--passes", str(passes), "--json"]
    if not publishing:
        command += ["--conf", "publish:off"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    passes = report["time"]["passes"]
    calls = [sum(one["driver_calls"].values()) for one in passes]
    return {"ms": [one["ns"] / 1e6 for one in passes], "ratio": report["memory"]["ratio"], "calls": calls}


def best(runs, which):
    return min(which(run["ms"]) for run in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--passes", type=int, default=6)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--torch", metavar="LIBRARY", help=argparse.SUPPRESS)
    parser.add_argument("tui", metavar="GPUMEM_TUI")
    parser.add_argument("traces", metavar="TRACE", nargs="+")
    asked = parser.parse_args()
    if asked.torch:
        return torchs(asked.torch, asked.traces[0], asked.passes)

    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(asked.gpu)}
    theirs = {"torch": environment, "expand": {**environment, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}
    first, later = (lambda ms: ms[0]), (lambda ms: min(ms[1:]))
    sums = [0.0] * 7
    print(
        f"{'':<18} {'ratio':>6} {'expand':>6} {'torch':>6} | {'first':>7} {'expand':>7} {'torch':>7} | "
        f"{'later':>6} {'(not)':>6} {'expand':>6} {'torch':>6} | calls"
    )
    with tempfile.TemporaryDirectory() as folder:
        library = build(folder)
        for path in asked.traces:
            me = [sys.executable, os.path.abspath(__file__), "--torch", library, "--passes", str(asked.passes), asked.tui, path]
            runs = {"torch": [], "expand": [], "publishing": [], "not": []}
            for _ in range(asked.rounds):
                for which, its in theirs.items():
                    output = subprocess.run(me, env=its, capture_output=True, text=True, check=True).stdout
                    runs[which].append(json.loads(output))
                runs["publishing"].append(ours(asked.tui, asked.gpu, path, asked.passes, True))
                runs["not"].append(ours(asked.tui, asked.gpu, path, asked.passes, False))
            ratios = [f"{runs[which][0]['ratio']:.3f}" for which in ("publishing", "expand", "torch")]
            figures = [best(runs[which], first) for which in ("publishing", "expand", "torch")]
            figures += [best(runs[which], later) for which in ("publishing", "not", "expand", "torch")]
            sums = [sum_ + figure for sum_, figure in zip(sums, figures)]
            calls = runs["publishing"][0]["calls"]
            name = os.path.basename(path).split(".")[0]
            print(row(name, ratios, figures) + f" | {calls[0]:,}, {min(calls[1:]):,}", flush=True)
    print(row("all", ("", "", ""), sums))
    print(f"milliseconds in the allocator, the best of {asked.rounds}; PyTorch {runs['torch'][0]['version']}")


def row(name, ratios, figures):
    ratios, first = " ".join(f"{ratio:>6}" for ratio in ratios), " ".join(f"{ms:>7.1f}" for ms in figures[:3])
    return f"{name:<18} {ratios} | {first} | " + " ".join(f"{ms:>6.2f}" for ms in figures[3:])


if __name__ == "__main__":
    main()
