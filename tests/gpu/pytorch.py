#!/usr/bin/env python3
"""Compares what the dashboard shows of PyTorch's own allocator with what PyTorch says itself. Needs PyTorch, an NVIDIA GPU and tmux.

    pytorch.py PROGRAM PACKAGE          every check; PROGRAM is gpumem-tui, PACKAGE the folder src/python
    pytorch.py PROGRAM PACKAGE cost     throughput of a training loop with and without publishing, watched by a dashboard, in turn
    pytorch.py PROGRAM PACKAGE same     two programs train for four minutes, one of them publishing while dashboards come, go and are
                                        killed: their losses have to be equal to the bit

Prints PASS or FAIL for each check; exit code 1 if one failed. With two GPUs the two ranks of torchrun are checked, too.
"""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
FAILED = []


def check(name, good, detail=""):
    print("PASS" if good else "FAIL", name, detail, flush=True)
    if not good:
        FAILED.append(name)


# The programs that are watched.


def train():
    """Trains on sequences of different lengths. On SIGUSR1 it stands still and writes what PyTorch says."""
    # First: a signal that arrives while PyTorch is imported would end the program.
    halts = []
    signal.signal(signal.SIGUSR1, lambda *_: halts.append(1))
    import torch

    if os.environ.get("PUBLISH") == "1":
        import gpumem

        gpumem.publish()
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.manual_seed(7)
    if os.environ.get("DETERMINISTIC"):
        torch.use_deterministic_algorithms(True)
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    model = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    lengths = torch.randint(64, 768, (4096,), generator=torch.Generator().manual_seed(3)).tolist()
    folder = pathlib.Path(os.environ["FOLDER"])
    side = torch.cuda.Stream()
    if os.environ.get("POOL"):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            kept = [torch.empty(24 << 20, dtype=torch.uint8, device=device) for _ in range(3)]
        del kept[1]
    if os.environ.get("OWN_HISTORY"):
        torch.cuda.memory._record_memory_history(max_entries=2000)
    losses = []
    steps, begin, stop = 0, time.monotonic(), float(os.environ.get("SECONDS", "600"))
    while time.monotonic() - begin < stop:
        x = torch.randn(16, lengths[steps % len(lengths)], 512, device=device)
        with torch.cuda.stream(side):
            extra = torch.empty(lengths[-steps % len(lengths)] << 14, device=device)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del extra
        steps += 1
        if steps % 16 == 0:
            torch.cuda.synchronize()
        if steps % 500 == 0:
            losses.append(loss.item().hex())
        if halts:
            halts.clear()
            torch.cuda.synchronize()
            time.sleep(float(os.environ.get("HALT", "6")))
            said = {"stats": torch.cuda.memory_stats(device), "snapshot": torch.cuda.memory_snapshot()}
            (folder / f"said-{rank}.json.new").write_text(json.dumps(said, default=str))
            (folder / f"said-{rank}.json.new").rename(folder / f"said-{rank}.json")
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps, "seconds": time.monotonic() - begin, "losses": losses}), flush=True)


def out_of_memory():
    """Runs out of memory, and ends by that."""
    import torch

    if os.environ.get("PUBLISH") == "1":
        import gpumem

        gpumem.publish()
    torch.cuda.set_per_process_memory_fraction(0.02)
    held = [torch.empty(1 << 28, dtype=torch.uint8, device="cuda") for _ in range(4)]
    time.sleep(3)
    while True:
        held.append(torch.empty(3 << 28, dtype=torch.uint8, device="cuda"))


def tagged():
    """Takes memory under tags and without, and then allocates and frees under a tag for ever."""
    import torch
    import gpumem

    gpumem.publish(history=10_000)
    mib = 1 << 20
    with gpumem.tag("model"):
        model = [torch.empty(100 * mib, dtype=torch.uint8, device="cuda") for _ in range(8)]
    with gpumem.tag("optimizer"):
        state = [torch.empty(100 * mib, dtype=torch.uint8, device="cuda") for _ in range(16)]
    plain = torch.empty(300 * mib, dtype=torch.uint8, device="cuda")
    while model and state and plain is not None:
        gpumem.step()
        with gpumem.tag("forward"):
            held = [torch.empty(4096, dtype=torch.uint8, device="cuda") for _ in range(200)]
            del held
        time.sleep(0.02)


def outside():
    """Uses what takes memory outside of PyTorch's allocator, and says what NVML counts less what PyTorch reserved."""
    import torch

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(rank)
    torch.empty(1, device="cuda").fill_(1)
    time.sleep(4)
    a = torch.randn(2048, 2048, device="cuda")
    (a @ a).sum().item()
    if "RANK" in os.environ:
        import torch.distributed as distributed

        distributed.init_process_group("nccl")
        for group in (None, distributed.new_group()):
            distributed.all_reduce(torch.ones(1 << 20, device="cuda"), group=group)
        torch.cuda.synchronize()
    said = {"reserved": torch.cuda.memory_reserved()}
    (pathlib.Path(os.environ["FOLDER"]) / f"outside-{rank}.json").write_text(json.dumps(said))
    time.sleep(30)


def readings():
    """Says what a reading costs the thread that takes it, in microseconds of CPU time."""
    import torch
    from gpumem import _history, _torch, _users

    def cost(function, *arguments):
        times = []
        for _ in range(20):
            begin = time.thread_time()
            function(*arguments)
            times.append(time.thread_time() - begin)
        return round(statistics.median(times) * 1e6)

    held = [torch.empty(64 << 10, dtype=torch.uint8, device="cuda") for _ in range(10_000)]
    history = _history.History(0)
    figures = [_torch.stats(torch, 0)]
    said = {"stats": cost(_torch.stats, torch, 0), "users": cost(_users.names, torch, 0), "map of 10,000 blocks": cost(history.block_map, torch, figures)}
    history = _history.History(10_000)
    history.begin(torch)
    for _ in range(len(held)):
        torch.empty(64 << 10, dtype=torch.uint8, device="cuda")
    begin = time.monotonic()
    history.block_map(torch, figures)
    said["the first one with a history, ms"] = round((time.monotonic() - begin) * 1e3)
    said["with a history of 10,000 entries"] = cost(history.block_map, torch, figures)
    print(json.dumps(said), flush=True)


# The checks.


class Watching:
    """A folder for channels, and a dashboard in tmux that looks at it."""

    def __init__(self, program, package):
        self.program, self.package = program, package
        self.folder = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))
        self.environment = {
            **os.environ,
            "GPUMEM_DIR": str(self.folder),
            "GPUMEM_TUI": str(program),
            "FOLDER": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }

    def start(self, verb, published=True, before=(), **settings):
        environment = {**self.environment, **settings}
        if published:
            environment.update(PUBLISH="1", PYTHONPATH=str(self.package))
        command = [*before, sys.executable, str(HERE), verb]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    def json(self):
        done = subprocess.run([self.program, "--json"], env=self.environment, capture_output=True, text=True)
        return json.loads(done.stdout)

    def rows(self, state="publishing"):
        return [row for row in self.json()["processes"] if row["state"] == state]

    def wait_for_rows(self, count=1, state="publishing", seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            rows = [row for row in self.rows(state) if row.get("allocator")]
            if len(rows) >= count:
                return rows
            time.sleep(0.5)
        return []

    def look(self, name="w"):
        subprocess.run(["tmux", "kill-session", "-t", name], capture_output=True)
        words = f"GPUMEM_DIR={self.folder} {self.program}"
        subprocess.run(["tmux", "new-session", "-d", "-s", name, "-x", "120", "-y", "40", words], check=True)
        return name

    def keys(self, name, *keys):
        subprocess.run(["tmux", "send-keys", "-t", name, *keys], check=True)

    def screen(self, name, file=None):
        out = os.environ.get("SCREENS")
        if out and file:
            raw = subprocess.run(["tmux", "capture-pane", "-t", name, "-p", "-e"], capture_output=True).stdout
            (pathlib.Path(out) / f"{file}.ansi").write_bytes(raw)
        return subprocess.run(["tmux", "capture-pane", "-t", name, "-p"], capture_output=True, text=True).stdout

    def end(self):
        subprocess.run(["tmux", "kill-server"], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def compare(watching, pids, label, mapped=True):
    """Halts the programs, and compares what is shown with what PyTorch says at that moment. `mapped`: a viewer looks at their map."""
    for pid in pids:
        os.kill(pid, signal.SIGUSR1)
    time.sleep(4.5)
    rows = {row["pid"]: row for row in watching.rows()}
    end = time.monotonic() + 20
    for rank, pid in enumerate(pids):
        file = watching.folder / f"said-{rank}.json"
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.2)
        said = json.loads(file.read_text())
        file.unlink()
        stats, shown = said["stats"], (rows.get(pid) or {}).get("allocator") or {}
        wanted = {
            "reserved": stats["reserved_bytes.all.current"],
            "allocated": stats["allocated_bytes.all.current"],
            "requested": stats["requested_bytes.all.current"],
            "peak_reserved": stats["reserved_bytes.all.peak"],
            "peak_allocated": stats["allocated_bytes.all.peak"],
            "inactive_split": stats["inactive_split_bytes.all.current"],
            "segments": stats["segment.all.current"],
            "retries": stats["num_alloc_retries"],
            "ooms": stats["num_ooms"],
        }
        unlike = {name: (shown.get(name), value) for name, value in wanted.items() if shown.get(name) != value}
        check(f"{label}: figures of {pid} are memory_stats()", not unlike, str(unlike or shown.get("reserved")))
        segments = [s for s in said["snapshot"] if s["device"] == rank]
        free = [b["size"] for s in segments for b in s["blocks"] if b["state"] == "inactive"]
        wanted = {"largest_free": max(free, default=0), "free_blocks": len(free), "free_total": sum(free)}
        unlike = {name: (shown.get(name), value) for name, value in wanted.items() if shown.get(name) != value}
        if shown.get("largest_free") is not None:
            check(f"{label}: the map of {pid} is memory_snapshot()", not unlike, str(unlike or wanted))
        else:
            check(f"{label}: the map of {pid} is there if somebody looks", not mapped)


def one_program(watching, before=(), label="publish()", **settings):
    program = watching.start("train", published=not before, before=before, **settings)
    rows = watching.wait_for_rows()
    check(f"{label}: the program has a row", len(rows) == 1, str([r["pid"] for r in rows]))
    watching.look()
    time.sleep(6)
    watching.screen("w", "overview-" + label.replace(" ", "-").strip("()"))
    pid = rows[0]["pid"] if rows else program.pid
    compare(watching, [pid], label)
    watching.keys("w", "2")
    time.sleep(3)
    text = watching.screen("w", "blocks-" + label.replace(" ", "-").strip("()"))
    check(f"{label}: Blocks has a map", "segments" in text and "1 cell" in text)
    os.kill(pid, signal.SIGKILL)
    program.wait()
    died = watching.wait_for_rows(state="died", seconds=15)
    check(f"{label}: killed, it is a black box", any(row["pid"] == pid for row in died))


def failing(watching):
    program = watching.start("oom")
    program.wait()
    time.sleep(2)
    document = watching.json()
    texts = [f["text"] for f in document["findings"] if f.get("pid") == program.pid]
    check("an OOM is a finding with its line", any("ran out of memory" in t and "pytorch.py" in t for t in texts), str(texts))
    rows = [row for row in document["processes"] if row["pid"] == program.pid]
    good = rows and rows[0]["state"] in ("died", "exited") and rows[0]["allocator"]["largest_free"] is not None
    check("its map outlives it", bool(good), str(rows[0]["state"] if rows else None))


def ranks(watching):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--no-python"]
    program = watching.start("train", before=torchrun)
    rows = watching.wait_for_rows(2)
    by_rank = sorted(rows, key=lambda row: row.get("rank") or 0)
    check("two ranks have rows", [row.get("rank") for row in by_rank] == [0, 1], str([(r["device"], r.get("rank")) for r in rows]))
    if len(by_rank) == 2:
        time.sleep(6)
        compare(watching, [row["pid"] for row in by_rank], "torchrun", mapped=False)
    program.terminate()
    program.wait()


def tags(watching):
    """What a program took under a tag has that tag, and what it took under none has the line. Nobody looked when it was taken."""
    program = watching.start("tagged")
    watching.wait_for_rows()
    time.sleep(10)
    watching.look()
    time.sleep(4)
    watching.keys("w", "3")
    time.sleep(0.5)
    watching.keys("w", "t")
    time.sleep(4)
    text = watching.screen("w", "tags")
    line = next(number for number, text in enumerate(HERE.read_text().splitlines(), 1) if text.startswith("    plain = "))
    # A long line is cut.
    for tag, size in (("model", "800M"), ("optimizer", "1.6G"), (f"pytorch.py:{line} in t[a-z…]*", "300M")):
        check(f"tags: {tag} has {size}", re.search(rf"{tag} {size}", text) is not None)
    watching.keys("w", "2")
    time.sleep(2)
    watching.screen("w", "tags-blocks")
    check("tags: the map is not skipped", "1 cell" in watching.screen("w"))
    program.kill()
    program.wait()


def what_is_outside(watching, ranks):
    before = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={ranks}", "--no-python"] if ranks > 1 else ()
    program = watching.start("outside", before=[*before, str(watching.program), "run", "--"], published=False)
    files = [watching.folder / f"outside-{rank}.json" for rank in range(ranks)]
    end = time.monotonic() + 90
    while not all(file.exists() for file in files) and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(3)
    rows = sorted((row for row in watching.rows() if row.get("allocator")), key=lambda row: row.get("rank") or 0)
    check(f"outside, {ranks} ranks: each has a row", len(rows) == ranks, str(len(rows)))
    for row, file in zip(rows, files):
        found, reserved = row["outside"] or {}, json.loads(file.read_text())["reserved"]
        file.unlink()
        check("outside: it is NVML less reserved", found.get("bytes") == row["nvml"] - reserved, str(found))
        check("outside: the context was measured", 300 << 20 < (found.get("at_start") or 0) < 900 << 20, str(found.get("at_start")))
        check("outside: NCCL is named", ("NCCL (2 groups)" in found.get("users", "")) == (ranks > 1), found.get("users", ""))
    texts = [finding["text"] for finding in watching.json()["findings"] if "outside" in finding["text"]]
    print("findings:", texts, flush=True)
    program.kill()
    for row in rows:
        os.kill(row["pid"], signal.SIGKILL)
    program.wait()


def cost(watching, rounds=4, seconds="8"):
    """Steps a second with and without publishing, while a dashboard looks."""
    found = {False: [], True: []}
    watching.look()
    for _ in range(rounds):
        for published, rates in found.items():
            program = watching.start("train", published=published, SECONDS=seconds)
            said = json.loads(program.communicate()[0])
            rates.append(said["steps"] / said["seconds"])
    without, with_it = (statistics.median(rates) for rates in found.values())
    print("CPU time of a reading in microseconds:", watching.start("readings").communicate()[0].strip())
    print(f"steps a second: {without:.2f} without, {with_it:.2f} published and watched ({100 * (with_it / without - 1):+.2f} %), {found}")


def same(watching, seconds=240):
    """Two programs train alike, on two GPUs if there are as many. Dashboards look at one of them, and end in every way at random."""
    import torch

    chance = random.Random(5)
    settings = {"DETERMINISTIC": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "SECONDS": str(seconds)}
    alone = watching.start("train", published=False, CUDA_VISIBLE_DEVICES=str(torch.cuda.device_count() - 1), **settings)
    watched = watching.start("train", CUDA_VISIBLE_DEVICES="0", **settings)
    ends, mapped = {}, 0
    while watched.poll() is None:
        watching.look()
        time.sleep(chance.uniform(0.2, 4))
        watching.keys("w", chance.choice("123"))
        time.sleep(chance.uniform(0.2, 4))
        rows = watching.rows() if watched.poll() is None else []
        mapped += any((row.get("allocator") or {}).get("largest_free") for row in rows)
        pid = subprocess.run(["tmux", "list-panes", "-t", "w", "-F", "#{pane_pid}"], capture_output=True, text=True).stdout.strip()
        end = chance.choice(["SIGKILL", "SIGTERM", "SIGHUP", "q", "stop"])
        ends[end] = ends.get(end, 0) + 1
        if end == "q":
            watching.keys("w", "q")
        elif end == "stop":
            # Stopped, and the next one looks meanwhile.
            os.kill(int(pid), signal.SIGSTOP)
            time.sleep(1)
            os.kill(int(pid), signal.SIGKILL)
        else:
            os.kill(int(pid), getattr(signal, end))
        time.sleep(0.3)
    without, with_it = (json.loads(program.communicate()[0]) for program in (alone, watched))
    both = list(zip(without["losses"], with_it["losses"]))
    first = next((at for at, (one, other) in enumerate(both) if one != other), None)
    said = f"{without['steps']} steps without, {with_it['steps']} with; {len(both)} losses compared; dashboards ended by {ends}, {mapped} saw its map"
    check("losses are equal to the bit", len(both) > 10 and first is None and mapped > 0, f"{said}; first unlike: {first}")


def main():
    verbs = {"train": train, "oom": out_of_memory, "tagged": tagged, "outside": outside, "readings": readings}
    if sys.argv[1:2] and sys.argv[1] in verbs:
        return verbs[sys.argv[1]]()
    program, package = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    watching = Watching(program, package)
    try:
        if sys.argv[3:] == ["cost"]:
            return cost(watching)
        if sys.argv[3:] == ["same"]:
            same(watching)
            return 1 if FAILED else 0
        import torch

        one_program(watching)
        one_program(watching, label="expandable", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
        one_program(watching, label="pool", POOL="1")
        one_program(watching, before=[str(program), "run", "--"], label="run")
        one_program(watching, before=[str(program), "run", "--"], label="history", GPUMEM_HISTORY="10000")
        one_program(watching, label="own history", OWN_HISTORY="1")
        failing(watching)
        tags(watching)
        what_is_outside(watching, 1)
        if torch.cuda.device_count() > 1:
            ranks(watching)
            what_is_outside(watching, 2)
    finally:
        watching.end()
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
