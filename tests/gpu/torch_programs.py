"""The programs of c_abi.py that use PyTorch."""

import random
import time

from figures import adds_up, allocator_in, dashboard, peaks, torch_on, torch_peaks

MIB = 1 << 20
STEPS = 60


def torch_program(folder):
    """A small GPT on batches and sequences of changing size, which is what fragments a cache."""
    torch, allocator = torch_on(folder, 1)
    nn = torch.nn
    torch.cuda.set_per_process_memory_fraction(0.9)
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
    if allocator:
        adds_up(allocator)
        result |= peaks(allocator) | {"dashboard": dashboard(allocator, folder), "errors": allocator.library.gpumem_error_count()}
        result["caught"] = torch_failures(torch)
    else:
        result |= torch_peaks(torch)
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


def budgets(torch):
    """A fraction of the card binds at once, however much room the card has; a larger one lets the program go on."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(0.05)
    try:
        torch.empty(int(total * 0.06), dtype=torch.uint8, device="cuda")
        raise AssertionError("more than the fraction was handed out")
    except RuntimeError as error:
        assert "budget" in str(error), error
    assert free > total * 0.06 and torch.cuda.mem_get_info()[0] >= free - 64 * MIB, "the card has room"
    half = torch.full((int(total * 0.02),), 7, dtype=torch.uint8, device="cuda")
    torch.cuda.set_per_process_memory_fraction(0.9)
    more = torch.full((int(total * 0.06),), 9, dtype=torch.uint8, device="cuda")
    assert half.max().item() == half.min().item() == 7 and more.min().item() == 9


def torch_failures(torch):
    """What fails is an exception that says why, and the program goes on. Their first lines."""
    caught = []

    def fails(work):
        try:
            work()
        except RuntimeError as error:
            caught.append(str(error).splitlines()[0])

    fails(lambda: torch.empty(1 << 42, dtype=torch.uint8, device="cuda"))
    # What needs memory of PyTorch's own.
    fails(lambda: torch.cuda.MemPool(use_on_oom=True))
    assert len(caught) == 2, caught
    graphs(torch)
    budgets(torch)
    torch.cuda.empty_cache()
    assert torch.ones(1000, device="cuda").sum().item() == 1000
    return caught


def pool_program(folder):
    """PyTorch's own allocator, but that a part of the program has its memory from a pool, for which others take the segments."""
    import torch

    allocator = allocator_in(folder) if folder else None
    pool = torch.cuda.MemPool(allocator and allocator.allocator())
    sizes = random.Random(4)
    generator = torch.Generator(device="cuda").manual_seed(4)
    kept, sums = [], []
    with torch.cuda.use_mem_pool(pool):
        for step in range(200):
            x = torch.randn(sizes.randint(1 << 10, 1 << 22), device="cuda", generator=generator)
            kept.append(torch.tanh(x * 2).sort().values)
            sums.append(kept[-1].double().sum().item())
            if len(kept) > 20:
                kept.pop(sizes.randrange(20))
        del x
    if allocator:
        inside = allocator.stats().all.allocated_bytes.current
        assert inside >= sum(tensor.nbytes for tensor in kept), inside
        outside = torch.ones(1 << 26, device="cuda")
        assert allocator.stats().all.allocated_bytes.current == inside, "only what is asked for in the block is the pool's"
        del outside
        adds_up(allocator)
        result = peaks(allocator) | {"dashboard": dashboard(allocator, folder), "errors": allocator.library.gpumem_error_count()}
    else:
        result = torch_peaks(torch)
    kept.clear()
    del pool
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    if allocator:
        left = allocator.stats().all.allocated_bytes.current
        assert left == 0, f"{left} bytes of a pool that is gone"
        allocator.library.gpumem_empty_cache(-1)
        assert allocator.stats().all.reserved_bytes.current == 0
    return {"losses": [value.hex() for value in sums]} | result
