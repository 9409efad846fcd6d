#!/usr/bin/env python3
"""CUDA's per-thread default streams (handle 2) on libgpumem_alloc.so, with CuPy: threads fill blocks late, hand them to each other, free
them while work is queued, and end. Every block is compared with what it was filled with.

    threads.py DIR                    all of it, with DIR/libgpumem_alloc.so
    threads.py program DIR [careless] one of many threads; prints a JSON line

A careless program has the memory of all threads on one stream: it must be found out, or nothing here could be.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time

from figures import allocator_in

MIB = 1 << 20
OWN = 2
SECONDS = 8
REUSE = "cross_stream_reuse:on"
THREADS = 6
KERNELS = r"""
extern "C" __global__ void fill(int *words, long long n, int value, long long ns) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < ns);
    for (long long at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += gridDim.x * blockDim.x) words[at] = value;
}
extern "C" __global__ void compare(const int *words, long long n, int value, unsigned long long *wrong) {
    for (long long at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += gridDim.x * blockDim.x)
        if (words[at] != value) atomicAdd(wrong, 1ULL);
}
"""


class Memory:
    """Blocks of the library's, on the calling thread's own stream."""

    def __init__(self, folder, careless=False):
        import cupy

        self.cupy, self.library = cupy, allocator_in(folder).library
        module = cupy.RawModule(code=KERNELS)
        self.fill_kernel, self.compare_kernel = (module.get_function(name) for name in ("fill", "compare"))
        self.wrong = cupy.zeros(1, dtype=cupy.uint64)
        # A number of a stream that nobody waits for.
        self.nobodys = cupy.cuda.Stream(non_blocking=True)
        self.stream = self.nobodys.ptr if careless else OWN
        self.check(self.take(256), 256)

    def check(self, address, size):
        self.fill(address, size, 1)
        self.compare(address, size, 1)
        self.give(address, size)
        self.cupy.cuda.Stream.ptds.synchronize()

    def take(self, size):
        address = self.library.gpumem_alloc(size, 0, self.stream)
        if not address:
            raise MemoryError(self.library.gpumem_last_error())
        return address

    def give(self, address, size):
        self.library.gpumem_free(address, size, 0, self.stream)

    def fill(self, address, size, value, ns=0):
        with self.cupy.cuda.Stream.ptds:
            self.fill_kernel((4,), (256,), (self.cupy.uint64(address), self.cupy.int64(size // 4), self.cupy.int32(value), self.cupy.int64(ns)))

    def compare(self, address, size, value):
        with self.cupy.cuda.Stream.ptds:
            arguments = (self.cupy.uint64(address), self.cupy.int64(size // 4), self.cupy.int32(value), self.wrong)
            self.compare_kernel((4,), (256,), arguments)

    def wait(self):
        self.cupy.cuda.Stream.ptds.synchronize()

    def is_idle(self):
        return self.cupy.cuda.Stream.ptds.done


def elsewhere(work):
    """What a thread of its own returns, which has ended then."""
    result = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    thread.join()
    return result[0]


class Random:
    """Threads that give each other blocks, and end after a while; others come."""

    def __init__(self, memory):
        self.memory, self.end = memory, time.monotonic() + SECONDS
        self.lock, self.given = threading.Lock(), []
        self.blocks, self.threads, self.died = 0, 0, []

    def run(self):
        keepers = [threading.Thread(target=self.keep_one_going, args=(number,)) for number in range(THREADS)]
        for keeper in keepers:
            keeper.start()
        for keeper in keepers:
            keeper.join()
        for address, size, _ in self.given:
            self.memory.give(address, size)

    def keep_one_going(self, number):
        choices = random.Random(number)
        while time.monotonic() < self.end and not self.died:
            thread = threading.Thread(target=self.thread, args=(choices,))
            thread.start()
            thread.join()

    def thread(self, choices):
        try:
            self.work(choices)
        except Exception as error:
            self.died.append(repr(error))

    def work(self, choices):
        memory, live = self.memory, []
        for _ in range(choices.choice([1, 10, 500])):
            chance = choices.random()
            if chance < 0.5 and len(live) < 40 or not live:
                size = 512 * int(2 ** choices.uniform(0, 15))
                address, value = memory.take(size), choices.randint(1, 1 << 30)
                memory.fill(address, size, value, choices.choice([0, 0, 0, 2_000_000]))
                live.append((address, size, value))
                self.blocks += 1
                continue
            address, size, value = live.pop(choices.randrange(len(live)))
            memory.compare(address, size, value)
            if chance < 0.95:
                memory.give(address, size)
                continue
            # To another thread, once it is filled. What this one does with it next is behind its own work.
            memory.wait()
            with self.lock:
                self.given.append((address, size, value))
                live.append(self.given.pop(choices.randrange(len(self.given))))
        for address, size, value in live:
            memory.compare(address, size, value)
            memory.give(address, size)
        self.threads += 1


def program(folder, careless=""):
    memory = Memory(folder, bool(careless))
    work = Random(memory)
    work.run()
    memory.cupy.cuda.runtime.deviceSynchronize()
    wrong = int(memory.wrong.get()[0])
    errors = memory.library.gpumem_error_count()
    print(json.dumps({"wrong": wrong, "blocks": work.blocks, "threads": work.threads, "errors": errors, "died": work.died}))


def single_steps(folder):
    """Names of what is to be true, and whether it is."""
    memory, size, long = Memory(folder), 64 * MIB, 500_000_000
    busy, go_on = threading.Event(), threading.Event()
    mine = []

    def first():
        mine.append(memory.take(size))
        memory.fill(mine[0], size, 1, long)
        memory.give(mine[0], size)
        mine.append(memory.take(size))
        memory.give(mine[1], size)
        mine.append(memory.is_idle())
        busy.set()
        go_on.wait()
        memory.wait()

    thread = threading.Thread(target=first)
    thread.start()
    busy.wait()
    others = memory.take(size)
    still_busy = not memory.cupy.cuda.Stream.null.done
    yield "a thread reuses its own memory at once, while the GPU is busy with it", mine[0] == mine[1] and not mine[2]
    yield "another thread does not get it meanwhile", others != mine[0] and still_busy
    begin = time.monotonic()
    memory.fill(others, size, 2)
    memory.wait()
    yield "and does not wait for the first one's work", time.monotonic() - begin < 0.25 and not memory.cupy.cuda.Stream.null.done
    go_on.set()
    thread.join()
    yield "a new thread gets it when that is done", elsewhere(lambda: memory.take(size)) == mine[0]

    def short():
        address = memory.take(2 * size)
        memory.fill(address, 2 * size, 3, long)
        memory.give(address, 2 * size)
        return address

    left = elsewhere(short)
    next_one = elsewhere(lambda: memory.take(2 * size))
    still_busy = not memory.cupy.cuda.Stream.null.done
    yield "what a thread leaves to the GPU when it ends nobody gets meanwhile", next_one != left and still_busy
    memory.cupy.cuda.runtime.deviceSynchronize()
    yield "and the next one when that is done", elsewhere(lambda: memory.take(2 * size)) == left
    yield "a graph is captured from one while other threads take and give back memory", captures(memory)
    yield "nothing was refused", memory.library.gpumem_error_count() == 0


def captures(memory):
    """Whether a graph that fills a block does so again, whatever other threads did while it was captured."""
    size, ptds = 7 * MIB, memory.cupy.cuda.Stream.ptds
    address = memory.take(size)

    def others():
        blocks = [memory.take(MIB * (n + 1)) for n in range(40)]
        for n, block in enumerate(blocks):
            memory.fill(block, MIB, 5)
            memory.library.gpumem_record_stream(block, None)
            memory.give(block, MIB * (n + 1))

    with ptds:
        ptds.begin_capture(memory.cupy.cuda.runtime.streamCaptureModeRelaxed)
        memory.fill(address, size, 4)
        elsewhere(others)
        during = memory.take(3 * size)
        graph = ptds.end_capture()
        memory.fill(address, size, 6)
        graph.launch(ptds)
    memory.compare(address, size, 4)
    memory.wait()
    memory.give(address, size)
    memory.give(during, 3 * size)
    return int(memory.wrong.get()[0]) == 0


def rmm_steps(folder):
    """The same of RMM's buffers."""
    import rmm
    from rmm.pylibrmm.stream import PER_THREAD_DEFAULT_STREAM as own

    allocator = allocator_in(folder)
    rmm.mr.set_current_device_resource(allocator.rmm())

    def pointer():
        return rmm.DeviceBuffer(size=MIB, stream=own).ptr

    yield "RMM's buffers on it are reused", pointer() == pointer() and elsewhere(pointer) != 0
    yield "RMM: nothing was refused", allocator.library.gpumem_error_count() == 0


def has(module):
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode == 0


def tell(passed, what):
    print(f"{'PASS' if passed else 'FAIL'} per-thread default streams: {what}", flush=True)
    return not passed


def main():
    if sys.argv[1] == "program":
        return program(*sys.argv[2:])
    folder, failed = sys.argv[1], False
    if not has("cupy"):
        print("SKIPPED: no cupy")
        return None
    # What one thread's stream has freed goes to another's only then.
    os.environ["GPUMEM_ALLOC_CONF"] = REUSE
    for what, passed in single_steps(folder):
        failed |= tell(passed, what)
    if has("rmm"):
        for what, passed in rmm_steps(folder):
            failed |= tell(passed, what)
    else:
        print("SKIPPED: no rmm")
    for conf, careless in (("", []), (REUSE, []), (REUSE, ["careless"])):
        environment = {**os.environ, "GPUMEM_ALLOC_CONF": conf}
        command = [sys.executable, __file__, "program", folder, *careless]
        run = subprocess.run(command, capture_output=True, text=True, env=environment)
        line = (run.stdout.splitlines() or ["{}"])[-1]
        done = json.loads(line)
        fine = run.returncode == 0 and done.get("died") == [] and done.get("errors") == 0 and done["blocks"] > 1000
        failed |= tell(fine and (done["wrong"] > 0) == bool(careless), " ".join(["random", conf, *careless, line]))
        if not fine:
            print(run.stderr[-2000:])
    sys.exit(failed)


if __name__ == "__main__":
    main()
