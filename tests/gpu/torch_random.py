#!/usr/bin/env python3
"""Random programs of PyTorch on libgpumem_alloc.so: four threads, each with streams of its own, fill blocks, hand them to other streams and
threads, and free them while work is queued. Every block is compared with what it was filled with. Budgets, the cache and compaction change
meanwhile.

    torch_random.py DIR                         some seconds of each way to take memory, with DIR/libgpumem_alloc.so
    torch_random.py DIR program SEED SECONDS [careless]   one program, in the configuration of GPUMEM_ALLOC_CONF; prints one JSON line

A careless program does not say which streams use its blocks (record_stream): it must be found out, or nothing here could be.
"""

import importlib.util
import json
import os
import random
import subprocess
import sys
import threading
import time

from figures import adds_up, allocator_in

MIB = 1 << 20
SECONDS = 8
MONITOR = "monitor:[action:compact,ratio:0.1,seconds:1,least_mb:1]"
CONFIGURATIONS = [
    "segments:stitched",
    "segments:plain",
    f"segments:virtual,{MONITOR}",
    f"max_chunk_mb:2,{MONITOR}",
    "budget_mb:700",
]


class Program:
    def __init__(self, library, seed, seconds, careless):
        self.library, self.seed, self.careless = library, seed, careless
        self.end = time.monotonic() + seconds
        self.lock = threading.Lock()
        self.handed_over = []
        self.wrong, self.blocks, self.out_of_memory, self.died = 0, 0, 0, []

    def run(self):
        threads = [threading.Thread(target=self.thread, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.handed_over.clear()

    def thread(self, number):
        try:
            Worker(self, random.Random(self.seed * 4 + number)).work()
        except Exception as error:
            self.died.append(repr(error))


class Worker:
    def __init__(self, program, choices):
        self.program, self.choices = program, choices
        self.streams = [torch.cuda.Stream() for _ in range(choices.randint(1, 3))]
        self.limit = choices.choice([64, 256, 700]) * MIB
        # Each is a tensor, what it was filled with, and the stream that may use it.
        self.live, self.held, self.checks = [], 0, []

    def work(self):
        while time.monotonic() < self.program.end and not self.program.wrong:
            stream = self.choices.choice(self.streams)
            try:
                with torch.cuda.stream(stream):
                    self.step(stream)
            except torch.OutOfMemoryError:
                self.program.out_of_memory += 1
                self.live, self.held = [], 0
            if len(self.checks) > 300:
                self.compare()
        self.compare()

    def step(self, stream):
        chance = self.choices.random()
        if chance < 0.02:
            # So that the work on memory that is free by now is yet to come.
            torch.cuda._sleep(self.choices.randint(10_000, 3_000_000))
        if chance < 0.5 and self.held < self.limit or not self.live:
            self.allocate(stream)
        elif chance < 0.8:
            tensor, value = self.take(stream)
            self.checks.append((tensor == value).all())
            if self.choices.random() < 0.3:
                tensor.zero_()
        elif chance < 0.9:
            tensor, value = self.take(stream)
            self.keep(tensor.clone(), value, stream)
        elif chance < 0.95:
            self.hand_over(stream)
        elif chance < 0.951:
            torch.cuda.empty_cache()
        elif chance < 0.952:
            self.program.library.gpumem_compact(-1)
        elif chance < 0.953:
            torch.cuda.set_per_process_memory_fraction(self.choices.choice([0.02, 0.05, 0.2, 1.0]))

    def allocate(self, stream):
        few = self.choices.random() < 0.5
        size = 512 << self.choices.randint(0, 11) if few else int(2 ** self.choices.uniform(9, 25.5))
        tensor = torch.empty(size // 4 + 1, dtype=torch.int32, device="cuda")
        value = self.choices.randint(1, 1 << 30)
        self.keep(tensor.fill_(value), value, stream)
        self.program.blocks += 1

    def keep(self, tensor, value, stream):
        self.live.append((tensor, value, stream))
        self.held += tensor.nbytes

    def take(self, stream):
        """One of the live blocks, for use on this stream."""
        tensor, value, home = self.live.pop(self.choices.randrange(len(self.live)))
        self.held -= tensor.nbytes
        stream.wait_stream(home)
        self.use(tensor, stream)
        return tensor, value

    def use(self, tensor, stream):
        if not self.program.careless:
            tensor.record_stream(stream)

    def hand_over(self, stream):
        """Gives a block to the other threads, and copies one of those that were given."""
        tensor, value = self.take(stream)
        filled = stream.record_event()
        with self.program.lock:
            given = self.program.handed_over
            given.append((tensor, value, filled))
            del tensor
            tensor, value, filled = given.pop(self.choices.randrange(len(given)))
        stream.wait_event(filled)
        self.use(tensor, stream)
        self.keep(tensor.clone(), value, stream)

    def compare(self):
        torch.cuda.synchronize()
        self.program.wrong += sum(not check.item() for check in self.checks)
        self.checks.clear()


def program(folder, seed, seconds, careless=""):
    allocator = allocator_in(folder)
    torch.cuda.memory.change_current_allocator(allocator)
    torch.zeros(1, device="cuda")
    run = Program(allocator.library, int(seed), float(seconds), bool(careless))
    run.run()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    adds_up(allocator)
    figures = allocator.stats()
    result = {key: getattr(run, key) for key in ("wrong", "blocks", "out_of_memory", "died")}
    # What is refused is memory, and nothing else.
    print(json.dumps(result | {"refused": allocator.library.gpumem_error_count() - figures.num_ooms}))


def compare(folder):
    failed = False
    # The last one is found out at once.
    careful = [(configuration, []) for configuration in CONFIGURATIONS]
    for seed, (configuration, careless) in enumerate([*careful, ("", ["careless"])]):
        command = [sys.executable, __file__, folder, "program", str(seed), str(SECONDS), *careless]
        environment = os.environ | {"GPUMEM_ALLOC_CONF": configuration}
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
        if run.returncode != 0:
            print(f"FAIL random, {configuration} (exit {run.returncode}):\n{run.stdout}{run.stderr}")
            failed = True
            continue
        found = json.loads(run.stdout.splitlines()[-1])
        fine = not found["died"] and found["refused"] == 0 and bool(found["wrong"]) == bool(careless)
        failed |= not fine
        name = f"random, {configuration}" if configuration else "random, without record_stream"
        print(f"{'PASS' if fine else 'FAIL'} {name}: {found}")
    sys.exit(failed)


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("SKIPPED random: this Python cannot import torch")
        sys.exit()
    import torch

    folder, *rest = sys.argv[1:]
    program(folder, *rest[1:]) if rest else compare(folder)
