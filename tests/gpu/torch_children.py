#!/usr/bin/env python3
"""The program of c_abi.py that is a script as it is, under torchrun: what it spawns is on the library, too.

    torch_children.py FOLDER      the script: FOLDER has gpumem-tui, and no word in it is of the allocator
"""

import json
import os
import subprocess
import sys

from figures import plugged

RANKS = 2


def children_program(folder):
    launched = ["-m", "torch.distributed.run", "--nproc-per-node", "1", __file__, folder or ""]
    out = subprocess.run([*plugged(folder), sys.executable, *launched], stdout=subprocess.PIPE, text=True, check=True).stdout
    ranks = [json.loads(line) for line in sorted(out.splitlines())]
    assert len(ranks) == RANKS, out
    assert all(rank["backend"] == ("pluggable" if folder else "native") for rank in ranks), ranks
    result = {"losses": [rank["loss"] for rank in ranks]}
    result |= {what: max(rank[what] for rank in ranks) for what in ("reserved", "requested")}
    if folder:
        result |= {"dashboard": ranks[0]["dashboard"], "errors": sum(rank["errors"] for rank in ranks)}
    return result


def script(folder):
    import torch

    torch.multiprocessing.spawn(child, (folder,), RANKS)


def child(rank, folder):
    import torch
    from figures import told, torch_peaks

    torch.manual_seed(rank)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(1024, 1024), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(20):
        batch = torch.randn(100 + 7 * step, 1024, device="cuda")
        loss = torch.nn.functional.mse_loss(model(batch), batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    result = {"rank": rank, "loss": loss.item().hex(), "backend": torch.cuda.get_allocator_backend()} | torch_peaks(torch)
    if folder:
        import gpumem

        result |= told(gpumem.allocator, folder)
    # One write, so that those of two processes do not mix.
    os.write(1, f"{json.dumps(result)}\n".encode())


if __name__ == "__main__":
    script(sys.argv[1])
