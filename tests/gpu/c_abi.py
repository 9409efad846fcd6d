#!/usr/bin/env python3
"""The programs and comparisons of c_abi.sh.

    c_abi.py compare DIR              runs the others, with each library that can be imported, and compares
    c_abi.py torch|cupy|rmm [DIR]     the program: with the library's own allocator, or with DIR/libgpumem_alloc.so

A program prints one JSON line: its results, its peak of reserved and requested bytes.
"""

import importlib.util
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../demo/python"))
MIB = 1 << 20
STEPS = 60


def peaks(library):
    import gpumem

    figures = gpumem.stats(library)
    return {"reserved": figures.all.reserved_bytes.peak, "requested": figures.all.requested_bytes.peak}


def dashboard(library, folder):
    """What gpumem-tui says of this very process is what the library says."""
    import gpumem

    report = json.loads(subprocess.run([f"{folder}/gpumem-tui", "--json"], capture_output=True, check=True).stdout)
    row = next(row for row in report["processes"] if row["pid"] == os.getpid())
    figures = gpumem.stats(library).all
    assert row["state"] == "publishing" and row["allocator"]["allocated"] == figures.allocated_bytes.current, row
    return row["allocator"]


def adds_up(library):
    """The segments of a snapshot are what is reserved."""
    import gpumem

    with tempfile.TemporaryDirectory() as folder:
        gpumem.snapshot(library, f"{folder}/state.pickle")
        with open(f"{folder}/state.pickle", "rb") as file:
            segments = pickle.load(file)["segments"]
    reserved = gpumem.stats(library).all.reserved_bytes.current
    assert sum(segment["total_size"] for segment in segments) == reserved, (segments, reserved)


def torch_program(folder):
    """A small GPT on batches and sequences of changing size, which is what fragments a cache."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch
    from torch import nn

    library = None
    if folder:
        import torch_pluggable

        library = torch_pluggable.install(f"{folder}/libgpumem_alloc.so")
    torch.use_deterministic_algorithms(True)
    torch.cuda.set_per_process_memory_fraction(0.9)
    torch.manual_seed(1)
    sizes = random.Random(1)
    width, heads, layers, vocabulary, longest = 768, 12, 8, 16_000, 1024

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-2, -1) / (width // heads) ** 0.5
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            scores = scores.masked_fill(~mask, float("-inf")).softmax(-1)
            x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, length, width))
            return x + self.mlp(self.norm2(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
            self.blocks, self.head = nn.Sequential(*[Block() for _ in range(layers)]), nn.Linear(width, vocabulary)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
            return self.head(self.blocks(x))

    model = Gpt().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    side = torch.cuda.Stream()
    losses, start = [], None
    for step in range(STEPS):
        batch, length = sizes.randint(1, 8), sizes.randint(16, longest)
        host = torch.randint(vocabulary, (batch, length + 1), generator=torch.Generator().manual_seed(step)).pin_memory()
        with torch.cuda.stream(side):
            # The allocation belongs to the side stream; what uses it here must be told.
            data = host.cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        data.record_stream(torch.cuda.current_stream())
        logits = model(data[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), data[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if step == 4:
            start = time.monotonic()
    seconds = time.monotonic() - start
    weights = sum(p.double().sum().item() for p in model.parameters())
    result = {"losses": [loss.hex() for loss in losses], "weights": weights.hex(), "seconds": seconds}
    if library:
        adds_up(library)
        result |= peaks(library) | {"dashboard": dashboard(library, folder), "errors": library.gpumem_error_count()}
        result["caught"] = torch_failures(torch)
    else:
        figures = torch.cuda.memory_stats()
        result |= {"reserved": figures["reserved_bytes.all.peak"], "requested": figures["requested_bytes.all.peak"]}
    return result


def graphs(torch):
    """A graph's memory is its own: what is allocated, filled and freed between two replays changes nothing of what it computes."""
    x = torch.zeros(1 << 20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        half = (x + 1) * 3  # freed in the graph, and used by it at every replay
        y = half.cumsum(0)
        del half
    for n in range(5):
        x.fill_(n)
        noise = [torch.full((1 << size,), float("nan"), device="cuda") for size in range(10, 24)]
        del noise
        torch.cuda.empty_cache()
        graph.replay()
        assert y[-1].item() == 3 * (n + 1) * (1 << 20), n
    del graph, y
    torch.cuda.empty_cache()


def in_mem_pool(torch):
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        torch.zeros(1000, device="cuda")


def torch_failures(torch):
    """What fails is an exception that says why, and the program goes on. Their first lines."""
    caught = []

    def fails(work):
        try:
            work()
        except RuntimeError as error:
            caught.append(str(error).splitlines()[0])

    fails(lambda: torch.empty(1 << 42, dtype=torch.uint8, device="cuda"))

    assert len(caught) == 1, caught
    graphs(torch)
    # PyTorch's own class for pluggable allocators refuses it, up to 2.11 at least; where it does not, it works.
    fails(lambda: in_mem_pool(torch))
    torch.cuda.empty_cache()
    assert torch.ones(1000, device="cuda").sum().item() == 1000
    return caught


def cupy_program(folder):
    """Arrays of random sizes on two streams."""
    import cupy

    library = None
    if folder:
        import cupy_cfunction

        library = cupy_cfunction.install(f"{folder}/libgpumem_alloc.so")
    sizes = random.Random(2)
    generator = cupy.random.RandomState(2)
    streams = [cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)]
    sums, kept = [], []
    for step in range(400):
        with streams[step % 2]:
            a = generator.uniform(size=(sizes.randint(16, 2000), sizes.randint(16, 2000))).astype(cupy.float32)
            b = cupy.sort(cupy.tanh(a * 2) + 1, axis=1)
            sums.append(float(b.sum() + (a @ a.T).max()))
            kept.append((b, streams[step % 2]))
            if len(kept) > 30:
                kept.pop(sizes.randrange(30))
    for stream in streams:
        stream.synchronize()
    result = {"losses": [value.hex() for value in sums]}
    if library:
        result |= peaks(library) | {"dashboard": dashboard(library, folder), "errors": library.gpumem_error_count()}
    else:
        result |= {"reserved": cupy.get_default_memory_pool().total_bytes(), "requested": None}
    return result


def rmm_program(folder):
    """Buffers of random sizes that are filled and read back."""
    import rmm

    library = None
    if folder:
        import rmm_callback

        library = rmm_callback.install(f"{folder}/libgpumem_alloc.so")
    else:
        rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 28))
    sizes = random.Random(3)
    kept, sums = [], []
    for step in range(400):
        data = bytes([step % 251]) * sizes.randint(1, 4 * MIB)
        kept.append(rmm.DeviceBuffer.to_device(data))
        if len(kept) > 30:
            sums.append(sum(kept.pop(sizes.randrange(30)).tobytes()))
    result = {"losses": sums, "reserved": None, "requested": None}
    if library:
        result |= peaks(library) | {"dashboard": dashboard(library, folder), "errors": library.gpumem_error_count()}
    return result


PROGRAMS = {"torch": torch_program, "cupy": cupy_program, "rmm": rmm_program}


def compare(folder):
    failed = False
    for name in PROGRAMS:
        if importlib.util.find_spec(name) is None:
            print(f"SKIPPED {name}: this Python cannot import it")
            continue
        results = {}
        for allocator, where in (("its own", []), ("gpumem", [folder])):
            run = subprocess.run([sys.executable, __file__, name, *where], capture_output=True, text=True)
            if run.returncode != 0:
                print(f"FAIL {name} with {allocator} allocator (exit {run.returncode}):\n{run.stdout}{run.stderr}")
                failed = True
                break
            results[allocator] = json.loads(run.stdout.splitlines()[-1])
            results[allocator]["stderr"] = run.stderr
        if len(results) == 2:
            failed |= not agree(name, results["its own"], results["gpumem"])
    sys.exit(failed)


def agree(name, own, ours):
    same = own["losses"] == ours["losses"] and own.get("weights") == ours.get("weights")
    # Only what was refused on purpose may be heard of.
    silent = [line for line in ours["stderr"].splitlines() if "gpumem" not in line] == own["stderr"].splitlines()
    print(f"{'PASS' if same else 'FAIL'} {name}: {len(own['losses'])} results equal to the bit")
    print(f"{'PASS' if silent else 'FAIL'} {name}: as quiet as with its own allocator")
    if not silent:
        print(ours["stderr"], own["stderr"], sep="\n--- its own:\n")
    print(f"{'PASS' if ours['errors'] == 0 else 'FAIL'} {name}: {ours['errors']} calls were refused")
    for line in ours.get("caught", ()):
        print(f"     caught: {line}")
    print(f"     dashboard: {ours['dashboard']}")
    size = lambda bytes: f"{bytes / MIB:.0f} MiB" if bytes else "unknown"
    for who, result in (("its own", own), ("gpumem", ours)):
        took = f", {result['seconds']:.2f} s" if "seconds" in result else ""
        print(f"     {who:<8} peak reserved {size(result['reserved'])}, peak requested {size(result['requested'])}{took}")
    return same and silent and ours["errors"] == 0


def main():
    program, *folder = sys.argv[1:]
    if program == "compare":
        compare(*folder)
    print(json.dumps(PROGRAMS[program](folder[0] if folder else None)))


if __name__ == "__main__":
    main()
