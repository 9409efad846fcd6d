#!/usr/bin/env python3
"""The program of c_abi.py whose processes share tensors by torch.multiprocessing: weights that one trains on and others read, batches that
go through a queue, and what comes back.

    torch_sharing.py FOLDER      the script: FOLDER has gpumem-tui, and no word in it is of the allocator
"""

import json
import subprocess
import sys

from figures import plugged

BATCHES = 60


def sharing_program(folder):
    out = subprocess.run([*plugged(folder), sys.executable, __file__, folder or ""], stdout=subprocess.PIPE, text=True, check=True).stdout
    result = json.loads(out.splitlines()[-1])
    assert result.pop("backend") == ("pluggable" if folder else "native"), result
    return result


def script(folder):
    import torch
    import torch.multiprocessing as processes
    from figures import told, torch_peaks

    torch.manual_seed(8)
    spawn = processes.get_context("spawn")
    # What is large is stitched from what lies between these.
    held = [torch.full((size * 100_003,), float(size), device="cuda") for size in range(1, 60)]
    del held[::2]
    weights = [torch.randn(4096, 4096, device="cuda"), torch.randn(3000, device="cuda"), torch.randn(20_000_000, device="cuda")]
    sums = [one.double().sum().item() for one in weights]
    batches, results = spawn.Queue(3), spawn.Queue()
    others = [spawn.Process(target=other, args=(rank, weights, batches, results)) for rank in range(2)]
    for process in others:
        process.start()
    ready = sorted(results.get(timeout=120) for _ in others)
    values = [str(ready == [(rank, sums) for rank in range(2)])]
    for number in range(BATCHES):
        size = 1 + number * 37_003 % 3_000_000
        batch = torch.full((size,), float(number), device="cuda")
        batches.put((number, batch, batch[size // 2 :]))
        del batch
    answers = {}
    while len(answers) < BATCHES:
        number, total, doubled = results.get(timeout=120)
        answers[number] = total + doubled.double().sum().item()
        del doubled
    values += [answers[number] for number in range(BATCHES)]
    # What one writes the others see.
    weights[2].fill_(3.0)
    torch.cuda.synchronize()
    for _ in others:
        batches.put((-1, None, None))
    values += sorted(results.get(timeout=120) for _ in others)
    for process in others:
        process.join(60)
        values.append(process.exitcode)
    values.append(weights[1][:2].sum().item())
    torch.cuda.ipc_collect()
    result = {"losses": [value if isinstance(value, str) else float(value).hex() for value in values]}
    result |= {"backend": torch.cuda.get_allocator_backend()} | torch_peaks(torch)
    if folder:
        import gpumem

        result |= told(gpumem.allocator, folder)
    print(json.dumps(result))


def other(rank, weights, batches, results):
    import torch

    results.put((rank, [one.double().sum().item() for one in weights]))
    kept = []
    while True:
        number, batch, half = batches.get(timeout=120)
        if number < 0:
            break
        kept = [*kept[-3:], half.clone()]
        batch += 1
        results.put((number, half.double().sum().item(), torch.cat([batch, half]) * 2))
        del batch, half
    total = weights[2].double().sum().item()
    if rank == 0:
        weights[1][:2] = 5.0
    torch.cuda.synchronize()
    # The process that has them looks whether others let go of them before they ended.
    weights.clear()
    results.put(total)


if __name__ == "__main__":
    script(sys.argv[1])
