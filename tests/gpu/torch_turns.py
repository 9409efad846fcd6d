#!/usr/bin/env python3
"""One training script in PyTorch's allocator and in ours, in turn, on one GPU: time.

    torch_turns.py LIBRARY               LIBRARY is the built libgpumem_alloc.so
    torch_turns.py --rounds 60 ...       so many rounds of 37 steps
    torch_turns.py --histories ...       and with a history of events, with call stacks of Python only, and with all that there are

A small transformer whose batches are of 37 lengths, so that the CPU is the limit: whatever an allocation takes, a step takes longer. Each
allocator has two processes, all wait for their turn, and a round is one of each: a host that others use, too, is slow for both. One process
is as it is; the other's allocations and frees are timed, in C++, without Python or tensors in between. With histories there are two more,
which are as they are. Needs PyTorch with CUDA and g++.

Of each: milliseconds of the first ten steps; of a step in the median and the best round, and how many times as long that is as in PyTorch's
allocator (the median of the rounds, and their quartiles); milliseconds in the allocator in the first ten steps, and nanoseconds an
allocation and a free, together, in the median and the best round.
"""

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time

from against_torch import build
from figures import allocator_at

SOURCE = r"""
#include <chrono>
#include <cstdint>
#include <dlfcn.h>
#include <c10/cuda/CUDACachingAllocator.h>

static c10::cuda::CUDACachingAllocator::CUDAAllocator* native;
static void* (*take)(size_t, int, cudaStream_t);
static void (*give)(void*, size_t, int, cudaStream_t);
static uint64_t calls, nanoseconds;

struct Timed {
    std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
    ~Timed() {
        __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&nanoseconds, (std::chrono::steady_clock::now() - began).count(), __ATOMIC_RELAXED);
    }
};

// Before another allocator takes the native one's place; without a library that one is timed.
extern "C" void begin(const char* library) {
    native = c10::cuda::CUDACachingAllocator::get();
    if (!library) return;
    void* opened = dlopen(library, RTLD_NOW);
    take = reinterpret_cast<decltype(take)>(dlsym(opened, "gpumem_torch_alloc"));
    give = reinterpret_cast<decltype(give)>(dlsym(opened, "gpumem_torch_free"));
}
// After that, as PyTorch's own begins by itself only in its place.
extern "C" void replaced() {
    if (!take) native->init(1);
}
extern "C" void* timed_alloc(size_t size, int device, cudaStream_t stream) {
    Timed timed;
    return take ? take(size, device, stream) : native->raw_alloc_with_stream(size, stream);
}
extern "C" void timed_free(void* ptr, size_t size, int device, cudaStream_t stream) {
    Timed timed;
    if (give) give(ptr, size, device, stream);
    else native->raw_delete(ptr);
}
extern "C" uint64_t taken(uint64_t* spent) {
    *spent = __atomic_exchange_n(&nanoseconds, 0, __ATOMIC_RELAXED);
    return __atomic_exchange_n(&calls, 0, __ATOMIC_RELAXED);
}
"""
WHO = ("PyTorch's", "gpumem")
# What _record_memory_history() has call stacks of.
HISTORIES = ("python", "all")
FIRST, STEPS = 10, 37


def script(library, how):
    """Waits for a line, takes its turn, tells seconds, calls and nanoseconds in the allocator: first of the first steps, then of rounds."""
    timed = None if how in HISTORIES else how
    import torch

    if library and not timed:
        torch.cuda.memory.change_current_allocator(allocator_at(library))
    spent = ctypes.c_uint64()
    if timed:
        clock = ctypes.CDLL(timed)
        clock.begin(library.encode() if library else None)
        pluggable = torch.cuda.memory.CUDAPluggableAllocator(timed, "timed_alloc", "timed_free")
        torch.cuda.memory.change_current_allocator(pluggable)
        clock.replaced()
    torch.manual_seed(0)
    layers = [torch.nn.TransformerEncoderLayer(512, 8, 2048, 0.0, batch_first=True) for _ in range(6)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    if timed:
        clock.taken(ctypes.byref(spent))
    if how in HISTORIES:
        torch.cuda.memory._record_memory_history(max_entries=100_000, stacks=how)
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for step in range(FIRST if number == 0 else STEPS):
            batch = torch.randn(4, 100 + step, 512, device="cuda")
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        took = time.perf_counter() - began
        print(took, clock.taken(ctypes.byref(spent)) if timed else 0, spent.value, flush=True)


def turn(process):
    process.stdin.write("\n")
    process.stdin.flush()
    return [float(word) for word in process.stdout.readline().split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--histories", action="store_true")
    parser.add_argument("--how", help=argparse.SUPPRESS)
    parser.add_argument("library", metavar="LIBRARY")
    asked = parser.parse_args()
    if asked.how is not None:
        return script(os.path.abspath(asked.library) if asked.library else None, asked.how)

    with tempfile.TemporaryDirectory() as folder:
        timed = build(folder, SOURCE)
        kinds = [(who, how) for how in ("", timed, *HISTORIES * asked.histories) for who in WHO]
        processes = []
        for who, how in kinds:
            command = [sys.executable, os.path.abspath(__file__), "--how", how, "" if who == WHO[0] else asked.library]
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        # Each round begins with another one.
        rounds = [{} for _ in range(asked.rounds + 1)]
        for number, one in enumerate(rounds):
            for which in sorted(range(len(kinds)), key=lambda which: (which - number) % len(kinds)):
                one[kinds[which]] = turn(processes[which])
        for process in processes:
            process.stdin.close()
    first, later = rounds[0], rounds[1:]

    def compared(kind):
        steps = [one[kind][0] / STEPS * 1e3 for one in later]
        below, middle, above = statistics.quantiles([one[kind][0] / one[WHO[0], ""][0] for one in later], n=4)
        return f"{statistics.median(steps):.2f} ms a step (least {min(steps):.2f}), {middle:.3f} times PyTorch's ({below:.3f} to {above:.3f})"

    for who in WHO:
        inside = [2 * one[who, timed][2] / one[who, timed][1] for one in later]
        print(
            f"{who:<10} first {FIRST} steps {first[who, ''][0] * 1e3:.0f} ms, then {compared((who, ''))}; "
            f"in it {first[who, timed][2] / 1e6:.1f} ms in the first {FIRST}, then {statistics.median(inside):.0f} ns (least {min(inside):.0f}) a pair of {later[0][who, timed][1] / STEPS / 2:.0f} a step"
        )
    for who, how in kinds[4:]:
        print(f"{who:<10} with a history, stacks={how}: {compared((who, how))}")


if __name__ == "__main__":
    main()
