#!/usr/bin/env python3
"""PyTorch on several GPUs in one process: what one of them copies or computes from another one's memory, with PyTorch's own allocator and
with libgpumem_alloc.so.

    peers.py DIR             compares the two, with DIR/libgpumem_alloc.so
    peers.py program [DIR]   the program; prints one JSON line: its results, and GB/s from the first GPU to the second
"""

import importlib.util
import json
import subprocess
import sys
import time

from figures import allocator_in

SIDE = 8192


def pipeline(torch):
    """A network with one layer on each of two GPUs."""
    torch.manual_seed(1)
    first = torch.nn.Linear(1024, 4096).to("cuda:0")
    second = torch.nn.Linear(4096, 1024).to("cuda:1")
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()])
    for step in range(20):
        x = torch.randn(256 + 32 * (step % 5), 1024, device="cuda:0")
        loss = second(torch.relu(first(x)).to("cuda:1")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item().hex()


def program(folder):
    import torch

    errors = None
    if folder:
        allocator = allocator_in(folder)
        torch.cuda.memory.change_current_allocator(allocator)
        errors = allocator.library.gpumem_error_count
    there = torch.arange(SIDE * SIDE, device="cuda:0", dtype=torch.float32).reshape(SIDE, SIDE)
    small = torch.arange(1000, device="cuda:0")
    half = torch.empty(SIDE, SIDE, device="cuda:1", dtype=torch.float16)
    columns = torch.empty(SIDE, SIDE // 2, device="cuda:1")
    results = [
        small.to("cuda:1").sum().item(),
        bool((there.to("cuda:1").to("cuda:0") == there).all()),
        there.t().to("cuda:1")[3, 5].item(),
        half.copy_(there / 1e4).double().sum().item().hex(),
        columns.copy_(there[:, ::2]).double().sum().item().hex(),
        pipeline(torch),
    ]
    copy = torch.empty_like(there, device="cuda:1")
    for device in (0, 1):
        torch.cuda.synchronize(device)
    began = time.monotonic()
    for _ in range(20):
        copy.copy_(there)
    for device in (0, 1):
        torch.cuda.synchronize(device)
    rate = 20 * 4 * SIDE * SIDE / (time.monotonic() - began) / 1e9
    return {"results": results, "rate": rate, "errors": errors() if errors else 0}


def run(*arguments):
    done = subprocess.run([sys.executable, __file__, "program", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def main():
    if sys.argv[1] == "program":
        return print(json.dumps(program(*sys.argv[2:] or [None])))
    if importlib.util.find_spec("torch") is None:
        return print("SKIPPED peers: no torch")
    import torch

    if torch.cuda.device_count() < 2 or not torch.cuda.can_device_access_peer(0, 1):
        return print("SKIPPED peers: no two GPUs that have access to each other")
    (own, own_log), (ours, log) = run(), run(sys.argv[1])
    if own is None or ours is None:
        print("FAIL peers:", own_log if own is None else log)
        sys.exit(1)
    passed = own["results"] == ours["results"] and ours["errors"] == 0 and "gpumem:" not in log
    rates = f"{ours['rate']:.0f} GB/s from one to the other, PyTorch's own {own['rate']:.0f}"
    print("PASS" if passed else "FAIL", f"peers: two GPUs, results equal to PyTorch's own: {own['results'] == ours['results']}; {rates}")
    if not passed:
        print(own["results"], ours, log)
    sys.exit(not passed)


if __name__ == "__main__":
    main()
