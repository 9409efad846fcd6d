#!/usr/bin/env python3
"""Watches programs with managed memory from outside and compares what is seen with what they do. Needs Python and the driver only.

    unified.py BIN            every check; BIN/uvm is `cargo build --release -p gpumem-probe --example uvm`,
                              BIN/gpumem-tui the dashboard (for the checks that stop and kill it)
    unified.py BIN cost       what looking costs a program: 40 rounds each without, with counters and with events, in turn
    unified.py program        the watched program: obeys lines on stdin

It uses at most 256 MiB of managed memory. Prints PASS or FAIL for each check; exit code 1 if one failed. Nothing else may start or end
on the GPU meanwhile.
"""

import ctypes
import json
import os
import pathlib
import pty
import random
import re
import signal
import statistics
import subprocess
import sys
import time

MIB = 1 << 20
BLOCK = 2 * MIB
PAGE = 4096


class Driver:
    """What the program needs of libcuda."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        status = getattr(self.lib, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {status}")

    def managed(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAllocManaged", ctypes.byref(address), ctypes.c_size_t(size), 1)
        return address.value

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.gpu(address.value, size)

    def gpu(self, address, size):
        self.call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(1), ctypes.c_size_t(size))
        self.call("cuCtxSynchronize")

    def prefetch(self, address, size, device):
        """Moves a range; device -1 is the CPU."""
        self.call("cuMemPrefetchAsync", ctypes.c_uint64(address), ctypes.c_size_t(size), ctypes.c_int(device), None)
        self.call("cuCtxSynchronize")


def touch(address, size):
    """Touches each page of a range in order."""
    for page in range(address, address + size, PAGE):
        ctypes.c_ubyte.from_address(page).value = 1


def program():
    driver = Driver()
    address = size = 0
    for line in sys.stdin:
        verb, *rest = line.split()
        if verb == "managed":
            size = int(rest[0]) * MIB
            address = driver.managed(size)
        elif verb == "plain":
            driver.allocate(int(rest[0]) * MIB)
        elif verb in ("cpu", "gpu"):
            for n, wanted in enumerate(rest[0]):
                if wanted == "1":
                    (touch if verb == "cpu" else driver.gpu)(address + n * BLOCK, BLOCK)
        elif verb == "move":
            for _ in range(int(rest[0])):
                driver.prefetch(address, size, 0)
                driver.prefetch(address, size, -1)
        elif verb == "to_gpu":
            driver.prefetch(address, size, 0)
        elif verb == "bounce":
            halves = [[], []]
            for _ in range(int(rest[0])):
                begin = time.perf_counter()
                touch(address, size)
                middle = time.perf_counter()
                driver.gpu(address, size)
                halves[0].append(middle - begin)
                halves[1].append(time.perf_counter() - middle)
            print(json.dumps([statistics.median(half) * 1e3 for half in halves]), flush=True)
            continue
        elif verb == "exec":
            print("done", flush=True)
            os.execvp("sleep", ["sleep", "30"])
        elif verb == "exit":
            os._exit(0)
        print("done", flush=True)


class Program:
    """A watched program."""

    def __init__(self):
        command = [sys.executable, __file__, "program"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def do(self, line):
        self.tell(line)
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise RuntimeError(f"the program ended at {line}")
        return answer

    def end(self):
        self.process.kill()
        self.process.wait()


class Watch:
    """The example that watches a program, for so many seconds."""

    def __init__(self, folder, pid, seconds, *events):
        command = [str(folder / "uvm"), str(pid), str(seconds), *events]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        time.sleep(1.5 if seconds > 1 else 0)

    def text(self):
        return self.process.communicate()[0]

    def counters(self):
        found = re.findall(r"to_gpu: (\d+), to_cpu: (\d+), cpu_faults: (\d+), gpu_faults: (\d+)", self.text())
        return tuple(map(int, found[-1])) if found else None

    def end(self):
        self.process.kill()
        self.process.wait()


class Nvml:
    """What the device has given out."""

    class Memory(ctypes.Structure):
        _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]

    def __init__(self):
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        self.lib.nvmlInit_v2()
        self.handle = ctypes.c_void_p()
        self.lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle))

    def used(self):
        memory = self.Memory()
        self.lib.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(memory))
        return memory.used // MIB


FAILED = []


def check(name, good, seen):
    print(f"{'PASS' if good else 'FAIL'} {name}: {seen}", flush=True)
    if not good:
        FAILED.append(name)


def exact(folder):
    """Bytes each way, faults and pages against what a program did."""
    target = Program()
    target.do("managed 64")
    target.do("cpu " + "1" * 32)
    watch = Watch(folder, target.pid, 6)
    target.do("move 100")
    seen = watch.counters()
    check("100 prefetches of 64 MiB each way are counted", seen and seen[:3] == (6400 * MIB, 6400 * MIB, 0), seen)

    target.do("to_gpu")
    watch = Watch(folder, target.pid, 4)
    target.do("cpu " + "1" * 32)
    seen = watch.counters()
    check("a sequential touch by the CPU takes six faults a block", seen and seen[1:3] == (64 * MIB, 6 * 32), seen)

    chance = random.Random(7)
    wrong = []
    for _ in range(10):
        gpu = "".join(chance.choice("01") for _ in range(32))
        cpu = gpu.translate(str.maketrans("01", "10"))
        target.do("gpu " + gpu)
        target.do("cpu " + cpu)
        seen = re.findall(r"^    ([#+.]+)$", Watch(folder, target.pid, 0.3).text(), re.M)[-1]
        if seen != cpu.translate(str.maketrans("01", ".#")):
            wrong.append((gpu, seen))
    check("pages of ten patterns are where they were touched last", not wrong, wrong or "10 of 10")

    watch = Watch(folder, target.pid, 5, "events")
    target.do("move 20")
    text = watch.text()
    moved = re.search(r"User DeviceToHost: Moves { count: \d+, bytes: (\d+)", text)
    dropped = re.search(r"dropped: (\d+)", text)
    seen = [int(found[1]) if found else None for found in (moved, dropped)]
    check("events say that a prefetch call moved it", seen[1] == 0 and seen[0] and seen[0] >= 19 * 64 * MIB, seen)
    target.end()


def helpers():
    """The helper processes of dashboards, without those that have ended."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat") as file:
                pid, rest = file.read().split(" (", 1)
            name, rest = rest.rsplit(")", 1)
            if name == "gpumem-uvm" and rest.split()[0] != "Z":
                found.append(int(pid))
        except (OSError, ValueError):
            pass
    return found


class Dashboard:
    """The dashboard in a pseudo-terminal, with counters attached."""

    def __init__(self, folder):
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.environ.update(TERM="xterm-256color", COLUMNS="120", LINES="40")
            os.execv(str(folder / "gpumem-tui"), ["gpumem-tui", "--uvm", "on"])
        os.set_blocking(self.terminal, False)
        self.settle(2.5)

    def settle(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                os.read(self.terminal, 65536)
            except OSError:
                time.sleep(0.02)

    def end(self):
        for pid in [self.pid, *helpers()]:
            try:
                os.kill(pid, signal.SIGCONT)
            except OSError:
                pass
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def released(folder, nvml):
    """How soon a program that ends gives back its memory, whatever state the dashboard is in."""

    def stop_helpers(_):
        for pid in helpers():
            os.kill(pid, signal.SIGSTOP)

    states = {
        "the dashboard runs": lambda dashboard: None,
        "the dashboard is stopped": lambda dashboard: os.kill(dashboard.pid, signal.SIGSTOP),
        "the dashboard is killed": lambda dashboard: (os.kill(dashboard.pid, signal.SIGKILL), time.sleep(0.02)),
        "the helper is stopped": stop_helpers,
    }
    ends = {
        "killed": lambda target: target.process.kill(),
        "exits": lambda target: target.tell("exit"),
        "execs": lambda target: target.tell("exec"),
    }
    base = nvml.used()
    for state, act in [("nothing watches", None), *states.items()]:
        for end_name, end in ends.items():
            target = Program()
            target.do("managed 256")
            target.do("gpu " + "1" * 128)
            target.do("plain 1024")
            held = nvml.used() - base
            dashboard = Dashboard(folder) if act else None
            attached = len(helpers())
            if act:
                act(dashboard)
            begin = time.monotonic()
            end(target)
            while nvml.used() > base + 8 and time.monotonic() < begin + 5:
                time.sleep(0.002)
            took = (time.monotonic() - begin) * 1e3
            if dashboard:
                dashboard.end()
                time.sleep(0.3)
            target.end()
            good = took < 150 and not helpers() and (not act or attached == 1)
            check(f"memory comes back: {state}, the program {end_name}", good, f"{held} MiB after {took:.0f} ms")


def cost(folder):
    """Medians of a program that bounces 64 MiB, in turn."""
    target = Program()
    target.do("managed 64")
    target.do("bounce 5")
    rounds = {"nothing": [], "counters": [], "events": []}
    for _ in range(40):
        for mode, found in rounds.items():
            watch = None
            if mode != "nothing":
                watch = Watch(folder, target.pid, 600, *(["events"] if mode == "events" else []))
            found.append(json.loads(target.do("bounce 10")))
            if watch:
                watch.end()
    target.end()
    for mode, found in rounds.items():
        cpu, gpu = (statistics.median(half) for half in zip(*found))
        print(f"with {mode}: CPU half {cpu:.2f} ms, GPU half {gpu:.2f} ms ({len(found)} rounds of 10)")


def main():
    if sys.argv[1:] == ["program"]:
        return program()
    folder = pathlib.Path(sys.argv[1]).resolve()
    if sys.argv[2:] == ["cost"]:
        return cost(folder)
    exact(folder)
    released(folder, Nvml())
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
