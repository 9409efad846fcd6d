#!/usr/bin/env python3
"""Attaches to PyTorch programs that nobody prepared. Needs PyTorch, an NVIDIA GPU, and the right to trace other processes.

    attach.py PROGRAM [COUNT]       PROGRAM is gpumem-tui; COUNT attaches (100) to a main thread that computes, and as many to each way to wait

Each program trains, with its main thread or beside a main thread that waits, while gpumem-tui attaches and detaches. Its losses have to be
those of a program that is left alone, to the bit. What is shown has to be what PyTorch says itself, and a program that runs out of memory
after that has to be a black box. With two GPUs the two ranks of torchrun are attached to.
Prints PASS or FAIL for each check; exit code 1 if one failed.
"""

import json
import os
import pathlib
import re
import select
import signal
import statistics
import subprocess
import sys
import threading
import time

import pytorch
from pytorch import FAILED, Watching, check, compare

HERE = pathlib.Path(__file__).resolve()
WAITS = ("epoll", "sleep", "lock", "read")
STOPPED = re.compile(r"stood still for ([0-9.]+) ms, while it (ran|waited)")


# The programs that are attached to.


def job(kind):
    """Trains until a file says so. Waits in the main thread meanwhile, unless `kind` is "busy"."""
    folder = pathlib.Path(os.environ["FOLDER"])
    halts = []
    signal.signal(signal.SIGUSR1, lambda *_: halts.append(1))
    import torch

    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    stop = folder / f"stop-{kind}"
    losses, begin = [], time.monotonic()

    def train():
        torch.cuda.set_device(device)
        model = torch.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, dropout=0.0).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        lengths = torch.randint(32, 384, (4096,), generator=torch.Generator().manual_seed(3)).tolist()
        data = torch.Generator(device).manual_seed(5)
        steps = 0
        while not (steps % 16 == 0 and stop.exists()):
            x = torch.randn(8, lengths[steps % len(lengths)], 256, device=device, generator=data)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            steps += 1
            if steps == 50:
                (folder / f"ready-{kind}").touch()
            if steps % 100 == 0:
                losses.append(loss.item().hex())
            if halts:
                halts.clear()
                torch.cuda.synchronize()
                time.sleep(6)
                said = {"stats": torch.cuda.memory_stats(device), "snapshot": torch.cuda.memory_snapshot()}
                (folder / f"said-{rank}.new").write_text(json.dumps(said, default=str))
                (folder / f"said-{rank}.new").rename(folder / f"said-{rank}.json")
        torch.cuda.synchronize()

    if kind == "busy":
        train()
    else:
        thread = threading.Thread(target=train)
        thread.start()
        out, into = os.pipe()
        lock = threading.Lock()
        lock.acquire()
        poll = select.epoll()
        poll.register(out, select.EPOLLIN)
        ends = threading.Thread(target=lambda: (thread.join(), lock.release(), os.write(into, b"end")))
        ends.start()
        while thread.is_alive():
            if kind == "epoll":
                poll.poll()
            elif kind == "sleep":
                time.sleep(2)
            elif kind == "lock":
                lock.acquire()
            else:
                os.read(out, 3)
        thread.join()
        ends.join()
    left = {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "modules": sorted(name for name in sys.modules if "gpumem" in name),
    }
    print(json.dumps({"seconds": time.monotonic() - begin, "losses": losses, "left": left}), flush=True)


def fills():
    """Takes all of the device, once a file says so, and ends by that."""
    import torch

    held = [torch.empty(1 << 28, dtype=torch.uint8, device="cuda") for _ in range(4)]
    go = pathlib.Path(os.environ["FOLDER"]) / "go"
    while not go.exists():
        time.sleep(0.05)
    while True:
        held.append(torch.empty(3 << 30, dtype=torch.uint8, device="cuda"))


# The checks.


class Attaching(Watching):
    def begin(self, *arguments, before=()):
        command = [*before, sys.executable, str(HERE), *arguments]
        environment = {**self.environment, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    def run(self, verb, pid):
        return subprocess.run([self.program, verb, str(pid)], env=self.environment, capture_output=True, text=True)


def wait_for(file, seconds=120):
    end = time.monotonic() + seconds
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.1)


def again_and_again(watching, program, count, found):
    """Attaches and detaches `count` times. Waits between them, so that the program is met everywhere in its step."""
    for number in range(count):
        begin = time.monotonic()
        done = watching.run("attach", program.pid)
        found["seconds"].append(time.monotonic() - begin)
        if done.returncode != 0:
            found["failed"].append(done.stderr.strip())
        elif not (said := STOPPED.search(done.stdout)):
            found["failed"].append("no stop is reported: " + done.stdout.strip())
        else:
            found["stops"][said[2]].append(float(said[1]))
        time.sleep(0.01 * (number % 10))
        if number == count - 1:
            return
        done = watching.run("detach", program.pid)
        if done.returncode != 0:
            found["failed"].append(done.stderr.strip())


def in_every_state(watching, count):
    kinds = ("busy", *WAITS)
    # A cuDNN that chooses by what is free could choose otherwise: all of them run beside each other, and so does the one that is left alone.
    (watching.folder / "alone").mkdir()
    environment = dict(watching.environment)
    watching.environment["FOLDER"] = str(watching.folder / "alone")
    alone = watching.begin("job", "busy")
    watching.environment = environment
    programs = {kind: watching.begin("job", kind) for kind in kinds}
    found = {kind: {"failed": [], "stops": {"ran": [], "waited": []}, "seconds": []} for kind in kinds}
    for kind in kinds:
        wait_for(watching.folder / f"ready-{kind}")
    threads = [threading.Thread(target=again_and_again, args=(watching, programs[kind], count, found[kind])) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = []
    for kind in kinds:
        failed, stops = found[kind]["failed"], found[kind]["stops"]
        check(f"{kind}: {count} of {count} attaches", not failed, str(sorted(set(failed))[:3] if failed else ""))
        for state, times in stops.items():
            if times:
                times.sort()
                least, middle, most = times[0], statistics.median(times), times[-1]
                seconds = statistics.median(found[kind]["seconds"])
                table.append(f"{kind:6} {len(times):4} met while it {state:6} stood still {least:.1f} / {middle:.1f} / {most:.1f} ms; whole command {seconds:.2f} s")
    # The last attach is still there.
    for kind in kinds:
        pid = programs[kind].pid
        row = next((row for row in watching.wait_for_rows(len(kinds)) if row["pid"] == pid), None)
        check(f"{kind}: it publishes", row is not None)
        if row is not None:
            watching.look("w")
            watching.keys("w", "/")
            watching.keys("w", "-l", str(pid))
            watching.keys("w", "Enter", "2")
            time.sleep(4)
            compare(watching, [pid], kind)
            watching.screen("w", f"attached-{kind}")
    for kind in kinds:
        done = watching.run("detach", programs[kind].pid)
        check(f"{kind}: detached", done.returncode == 0, done.stderr.strip())
    time.sleep(1)
    (watching.folder / "alone" / "stop-busy").touch()
    for kind in kinds:
        (watching.folder / f"stop-{kind}").touch()
    said = json.loads(alone.communicate()[0])
    for kind in kinds:
        own = json.loads(programs[kind].communicate()[0] or "{}")
        both = list(zip(said["losses"], own.get("losses", [])))
        first = next((at for at, (one, other) in enumerate(both) if one != other), None)
        check(f"{kind}: losses are equal to the bit", len(both) > 10 and first is None, f"{len(both)} losses compared; first unlike: {first}")
        left = own.get("left", {})
        check(f"{kind}: no thread and no module is left", left.get("threads") == ["MainThread"] and not left.get("modules"), str(left))
    return table


def failing(watching):
    program = watching.begin("fills")
    end = time.monotonic() + 60
    while watching.run("attach", program.pid).returncode != 0 and time.monotonic() < end:
        time.sleep(1)
    rows = watching.wait_for_rows()
    check("a program before its OOM publishes", [row["pid"] for row in rows] == [program.pid])
    (watching.folder / "go").touch()
    program.wait()
    time.sleep(2)
    document = watching.json()
    texts = [f["text"] for f in document["findings"] if f.get("pid") == program.pid]
    check("a genuine OOM is a finding with its line", any("ran out of memory" in t and "attach.py" in t for t in texts), str(texts))
    rows = [row for row in document["processes"] if row["pid"] == program.pid]
    good = rows and rows[0]["state"] in ("died", "exited") and rows[0]["allocator"]["largest_free"] is not None
    check("its map outlives it", bool(good), str({k: rows[0][k] for k in ("state", "allocator")} if rows else None))
    watching.look("w")
    time.sleep(3)
    watching.screen("w", "attached-oom")


def ranks(watching):
    """The two ranks of a torchrun that nobody prepared."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--no-python"]
    program = watching.begin("job", "busy", before=torchrun)
    end, pids = time.monotonic() + 90, []
    while time.monotonic() < end and len(pids) < 2:
        time.sleep(1)
        found = subprocess.run(["pgrep", "-P", str(program.pid)], capture_output=True, text=True).stdout.split()
        pids += [pid for pid in found if pid not in pids and watching.run("attach", pid).returncode == 0]
    rows = watching.wait_for_rows(2)
    rows.sort(key=lambda row: row.get("rank") or 0)
    check("two ranks have rows", [row.get("rank") for row in rows] == [0, 1], str([(r["device"], r.get("rank")) for r in rows]))
    if len(rows) == 2:
        compare(watching, [row["pid"] for row in rows], "torchrun", mapped=False)
    (watching.folder / "stop-busy").touch()
    program.wait()


def main():
    if sys.argv[1:2] == ["job"]:
        return job(sys.argv[2])
    if sys.argv[1:2] == ["fills"]:
        return fills()
    program = pathlib.Path(sys.argv[1]).resolve()
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    table = []
    for part in (lambda w: table.extend(in_every_state(w, count)), failing, ranks):
        if part is ranks:
            import torch

            if torch.cuda.device_count() < 2:
                continue
        watching = Attaching(program, pathlib.Path("/"))
        try:
            part(watching)
        finally:
            watching.end()
    print("\n".join(table))
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
