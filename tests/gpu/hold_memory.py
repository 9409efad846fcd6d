#!/usr/bin/env python3
"""Takes GPU memory with plain PyTorch and holds it: a program that does not publish.

    pip install torch
    python3 tests/gpu/hold_memory.py 2048 60      # 2048 MiB for 60 seconds
    python3 tests/gpu/hold_memory.py 2048         # until interrupted

Prints one line when the memory is held. Half of it is freed into PyTorch's cache, so the process holds memory in use and
cached memory. The driver cannot tell them apart, which this example shows.
"""

import argparse
import os
import time

import torch

MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mib", type=int, help="how much to take, in MiB")
    parser.add_argument("seconds", type=float, nargs="?", default=float("inf"), help="how long to keep it")
    parser.add_argument("--device", default="cuda:0")
    args = parser.parse_args()
    if args.mib < 2:
        parser.error("at least 2 MiB")

    device = torch.device(args.device)
    kept = torch.ones(args.mib // 2 * MIB, dtype=torch.uint8, device=device)
    cached = torch.ones((args.mib - args.mib // 2) * MIB, dtype=torch.uint8, device=device)
    del cached
    torch.cuda.synchronize(device)
    print(
        f"process {os.getpid()} on {torch.cuda.get_device_name(device)}: "
        f"reserved {torch.cuda.memory_reserved(device) // MIB} MiB, "
        f"allocated {torch.cuda.memory_allocated(device) // MIB} MiB",
        flush=True,
    )
    end = time.monotonic() + args.seconds
    try:
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 3600))
    except KeyboardInterrupt:
        pass
    del kept


if __name__ == "__main__":
    main()
