#!/usr/bin/env python3
"""Makes PyTorch, CuPy and JAX run out of memory, and reads what they say. Needs an NVIDIA GPU, and those of the three that it is asked for.

    messages.py PROGRAM FOLDER      pipes each text through `gpumem-tui triage`; FOLDER gets the texts

Prints PASS or FAIL for each failure: its verdict has to be the one that the program was written for. Exit code 1 if one failed.
"""

import json
import os
import pathlib
import subprocess
import sys

GIB = 1 << 30
TORCH = "import torch\nG = 1 << 30\nfree, total = torch.cuda.mem_get_info()\ntake = lambda n: torch.empty(int(n), dtype=torch.uint8, device='cuda')\n"
# name: (allocator, verdicts, text of the program)
PROGRAMS = {
    "pytorch-exhausted": ("device", ["exhausted"], TORCH + "held = []\nwhile True: held.append(take(2 * G))\n"),
    "pytorch-too-large": ("device", ["request-too-large"], TORCH + "take(total + 50 * G)\n"),
    "pytorch-fragmentation": (
        "device",
        ["fragmentation"],
        TORCH + "held = [take(2 * G) for _ in range(int(free // (2 * G)) - 1)]\nhalves = []\ndel held[1::2]\ntorch.cuda.synchronize()\n"
        "halves = [take(1.25 * G) for _ in range(len(held))]\ntake(8 * G)\n",
    ),
    "pytorch-fraction": ("device", ["process-limit"], TORCH + "torch.cuda.set_per_process_memory_fraction(0.05)\nheld = []\nwhile True: held.append(take(G))\n"),
    "pytorch-other-process": (
        "device",
        ["other-process"],
        "import subprocess, sys\nother = subprocess.Popen([sys.executable, '-c', 'import torch, time; free, total = torch.cuda.mem_get_info(); "
        "held = torch.empty(free - (6 << 30), dtype=torch.uint8, device=\"cuda\"); print(1, flush=True); time.sleep(60)'], stdout=subprocess.PIPE)\n"
        "other.stdout.readline()\ntry:\n    " + TORCH.replace("\n", "\n    ") + "held = [take(G), take(8 * G)]\nfinally:\n    other.kill()\n",
    ),
    "pytorch-graph-pools": (
        "device",
        ["graph-pools"],
        TORCH + "graph = torch.cuda.CUDAGraph()\ntorch.cuda.set_per_process_memory_fraction(1.0)\nwith torch.cuda.graph(graph):\n    a = take(total * 0.6)\n    del a\n"
        "held = []\nwhile True: held.append(take(4 * G))\n",
    ),
    "pytorch-pinned": (
        "pinned-host",
        ["pinned-memory", "incomplete"],
        "import torch\ntorch.zeros(1, device='cuda')\ntorch.empty(1 << 46, dtype=torch.uint8, pin_memory=True)\n",
    ),
    "cupy-exhausted": ("device", ["exhausted", "incomplete"], "import cupy\nheld = []\nwhile True: held.append(cupy.empty(2 << 30, dtype=cupy.uint8))\n"),
    "cupy-limit": (
        "device",
        ["pool-limit"],
        "import cupy\ncupy.get_default_memory_pool().set_limit(size=4 << 30)\nheld = []\nwhile True: held.append(cupy.empty(1 << 30, dtype=cupy.uint8))\n",
    ),
    "cupy-too-large": ("device", ["request-too-large", "incomplete"], "import cupy\ncupy.empty(1 << 45, dtype=cupy.uint8)\n"),
    "jax-exhausted": ("device", ["exhausted", "incomplete"], "import jax.numpy as np\nheld = []\nwhile True: held.append(np.ones((1 << 30,), np.float32).block_until_ready())\n"),
    "jax-too-large": ("device", ["request-too-large", "incomplete"], "import jax.numpy as np\nnp.ones((1 << 38,), np.float32).block_until_ready()\n"),
    "triton-on-chip": (
        "on-chip",
        ["on-chip"],
        "import torch, triton, triton.language as tl\n"
        "@triton.jit\ndef k(a, b, c, N: tl.constexpr):\n    i = tl.arange(0, N)\n    x = tl.load(a + i[:, None] * N + i[None, :])\n"
        "    y = tl.load(b + i[:, None] * N + i[None, :])\n    tl.store(c + i[:, None] * N + i[None, :], tl.dot(x, y))\n"
        "n = 512\na = torch.randn(n, n, device='cuda', dtype=torch.float16)\nk[(1,)](a, a, torch.empty(n, n, device='cuda'), N=n)\n",
    ),
    "healthy": ("none", ["nothing"], "import torch\nprint('epoch 1 loss', torch.randn(1000, 1000, device='cuda').square().mean().item(), 'memory', torch.cuda.memory_allocated())\n"),
}


def text_of(name, program, folder):
    """Runs a program, and returns what it printed."""
    file = folder / f"{name}.py"
    file.write_text(program)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    try:
        done = subprocess.run([sys.executable, str(file)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100)
        said = done.stdout
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"") + b"\n(it was ended after 100 s)\n"
    file.unlink()
    (folder / f"{name}.txt").write_bytes(said)
    return said


def main():
    program, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    only, failed = sys.argv[3:], 0
    for name, (allocator, verdicts, source) in PROGRAMS.items():
        if only and name not in only:
            continue
        said = text_of(name, source, folder)
        done = subprocess.run([program, "triage", "--json"], input=said, capture_output=True, timeout=60)
        try:
            found = json.loads(done.stdout)
        except ValueError:
            found = {}
        good = found.get("verdict") in verdicts and found.get("allocator") in allocator.split(", ")
        failed += not good
        print("PASS" if good else "FAIL", name, found.get("allocator"), found.get("verdict"), done.stderr.decode().strip()[:200], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
