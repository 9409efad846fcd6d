#!/usr/bin/env python3
"""Training over two GPUs, a process each, joined by NCCL: with PyTorch's own allocator and with libgpumem_alloc.so.

    distributed.py DIR                 compares the two, with DIR/libgpumem_alloc.so and DIR/gpumem-tui
    distributed.py program NAME [DIR]  one process of a program, as torchrun starts it; prints one JSON line
"""

import importlib.util
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time

from figures import adds_up, dashboard, peaks, torch_on, torch_peaks

WORLD = 2
STEPS = 30
MIB = 1 << 20


def network(torch, width=1024, layers=8):
    block = lambda: torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    return torch.nn.Sequential(*[block() for _ in range(layers)])


def train(torch, model, sizes, rank):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(STEPS):
        x = torch.randn(sizes.randint(1, 8), sizes.randint(16, 512), 1024, device="cuda", generator=torch.Generator("cuda").manual_seed(2 * step + rank))
        with torch.autocast("cuda", torch.bfloat16):
            loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.item().hex()


def data_parallel(torch, rank):
    """Gradients are summed over all in buckets, while backward still runs. Each process has batches of its own sizes."""
    model = torch.nn.parallel.DistributedDataParallel(network(torch).cuda(), device_ids=[rank], bucket_cap_mb=10)
    yield from train(torch, model, random.Random(rank), rank)


def sharded(torch, rank):
    """Each process keeps half of every weight. The others are gathered on a stream of their own before a layer, and freed behind it."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = network(torch).cuda()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    yield from train(torch, model, random.Random(rank), rank)


def experts(torch, rank):
    """Rows go to the process that has their expert, as many as there are: exchanges on two streams whose tensors are freed before they
    were sent."""
    sizes, side = random.Random(7), torch.cuda.Stream()
    expert = torch.nn.Linear(1024, 1024).cuda()
    for step in range(STEPS):
        split = [[sizes.randint(1, 8000) for _ in range(WORLD)] for _ in range(WORLD)]
        out, into = split[rank], [split[other][rank] for other in range(WORLD)]
        rows = torch.randn(sum(out), 1024, device="cuda", generator=torch.Generator("cuda").manual_seed(2 * step + rank))
        there = torch.empty(sum(into), 1024, device="cuda")
        torch.distributed.all_to_all_single(there, rows, into, out)
        del rows
        done = expert(there)
        back = torch.empty(sum(out), 1024, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work = torch.distributed.all_to_all_single(back, done.detach(), out, into, async_op=True)
        done.record_stream(side)
        back.record_stream(side)
        del there, done
        noise = [torch.full((sizes.randint(1, 1 << 22),), float("nan"), device="cuda") for _ in range(4)]
        with torch.cuda.stream(side):
            work.wait()
        torch.cuda.current_stream().wait_stream(side)
        yield back.double().sum().item().hex()
        del noise, back


def pipeline(torch, rank):
    """The first process sends what the second one goes on with, in another size at each step, and has the gradients back."""
    sizes, half = random.Random(9), network(torch, layers=4).cuda()
    optimizer = torch.optim.AdamW(half.parameters(), lr=1e-4)
    for step in range(STEPS):
        shape = (sizes.randint(1, 8), sizes.randint(16, 512), 1024)
        if rank == 0:
            x = torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
            y = half(x)
            torch.distributed.isend(y.detach(), 1)
            gradient = torch.empty_like(y)
            torch.distributed.recv(gradient, 1)
            y.backward(gradient)
            result = gradient.double().sum()
        else:
            x = torch.empty(shape, device="cuda")
            torch.distributed.recv(x, 0)
            x.requires_grad_()
            result = half(x).square().mean()
            result.backward()
            torch.distributed.send(x.grad, 0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield result.item().hex()


PROGRAMS = {"data parallel": data_parallel, "sharded": sharded, "experts": experts, "pipeline": pipeline}


def program(name, folder=None):
    rank = int(os.environ["RANK"])
    torch, allocator = torch_on(folder, 1)
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    began = time.monotonic()
    results = list(PROGRAMS[name](torch, rank))
    torch.cuda.synchronize()
    result = {"results": results, "seconds": time.monotonic() - began}
    if allocator:
        adds_up(allocator, rank)
        result |= peaks(allocator, rank) | {"dashboard": dashboard(allocator, folder, rank), "errors": allocator.library.gpumem_error_count()}
    else:
        result |= torch_peaks(torch)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    return result


def run(name, *folder):
    """What each process of a program says, or None and what is wrong."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = []
    with tempfile.TemporaryDirectory() as logs:
        for rank in range(WORLD):
            environment = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            out, log = open(f"{logs}/{rank}.out", "w+"), open(f"{logs}/{rank}.log", "w+")
            started = subprocess.Popen([sys.executable, __file__, "program", name, *folder], stdout=out, stderr=log, env=environment)
            processes.append((started, out, log))
        results, said = [], ""
        for process, out, log in processes:
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            out.seek(0)
            log.seek(0)
            said += log.read()
            results.append(json.loads(out.read().splitlines()[-1]) if process.returncode == 0 else None)
            out.close()
            log.close()
    return (None if None in results else results), said


def main():
    if sys.argv[1] == "program":
        return print(json.dumps(program(*sys.argv[2:])))
    if importlib.util.find_spec("torch") is None:
        return print("SKIPPED distributed: no torch")
    import torch

    if torch.cuda.device_count() < WORLD:
        return print("SKIPPED distributed: no two GPUs")
    failed = False
    size = lambda bytes: f"{bytes / MIB:.0f} MiB"
    for name in PROGRAMS:
        (own, own_log), (ours, log) = run(name), run(name, sys.argv[1])
        if own is None or ours is None:
            print(f"FAIL distributed, {name}:", own_log if own is None else log)
            failed = True
            continue
        equal = all(a["results"] == b["results"] for a, b in zip(own, ours))
        passed = equal and all(one["errors"] == 0 for one in ours) and "gpumem:" not in log
        failed |= not passed
        print(f"{'PASS' if passed else 'FAIL'} distributed, {name}: {WORLD} x {len(ours[0]['results'])} results equal to PyTorch's own: {equal}")
        if not passed:
            print(own, ours, log, sep="\n")
        for rank, (a, b) in enumerate(zip(own, ours)):
            print(
                f"     GPU {rank}: its own peak reserved {size(a['reserved'])}, requested {size(a['requested'])}, {a['seconds']:.2f} s; "
                f"gpumem {size(b['reserved'])}, {size(b['requested'])}, {b['seconds']:.2f} s"
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
