"""The program of c_abi.py that has trees of CUDA graphs, as torch.compile makes them with mode="reduce-overhead", and pools of torch.cuda.MemPool.

Each graph is captured around what the ones before it left, and PyTorch looks whether its pool holds what it should.
"""

import warnings

from figures import adds_up, peaks, told, torch_on, torch_peaks

WIDTH = 512


def trees_program(folder):
    torch, allocator = torch_on(folder, 7)
    import torch._inductor.config as inductor

    # Said where something is compiled, and not where an earlier run did so.
    warnings.filterwarnings("ignore", message="TensorFloat32")
    inductor.triton.slow_path_cudagraph_asserts = True
    results = []
    for part in (shapes, branches, training, with_history, pools):
        results += part(torch)
        torch._dynamo.reset()
    result = {"losses": [value if isinstance(value, str) else float(value).hex() for value in results]}
    if not allocator:
        return result | torch_peaks(torch)
    adds_up(allocator)
    return result | peaks(allocator) | told(allocator, folder)


def compiled(torch, function):
    return torch.compile(function, mode="reduce-overhead", dynamic=False)


def made(torch):
    """How many graphs there are, and how often one was captured after others were replayed."""
    from torch._inductor.cudagraph_trees import get_container

    manager = get_container(torch.cuda.current_device()).tree_manager
    return f"{manager.new_graph_id().id} graphs, {manager.debug_checkpointing_counter} checkpoints"


def shapes(torch):
    """One tree: a graph for each size of batch."""
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH)).cuda()
    model = compiled(torch, model)
    with torch.no_grad():
        for step in range(24):
            x = torch.full((8 << step % 3, WIDTH), step / 10, device="cuda")
            noise = torch.full(((step + 1) << 20,), float("nan"), device="cuda")
            del noise
            yield model(x).double().sum().item()
    yield made(torch)


def branches(torch):
    """What follows a graph is now this and now that, and what it left is held for longer or is not."""

    @torch.no_grad()
    def run():
        weights = [torch.randn(WIDTH, WIDTH, device="cuda") / 20 for _ in range(4)]
        first = compiled(torch, lambda x: (torch.tanh(x @ weights[0]), x @ weights[1], (x @ weights[2]).sum(0)))
        then = [
            compiled(torch, lambda a, b: (a @ weights[3] + b, a.exp())),
            compiled(torch, lambda a, b: (torch.cat([a, b]) @ weights[3]).relu()),
            compiled(torch, lambda a, b: a.sum() * b),
        ]
        for step in range(60):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.full((64, WIDTH), step / 7, device="cuda")
            a, b, c = first(x)
            if step % 4 == 0:
                del c
            found = then[step % 3](a, b)
            if step % 5 == 0:
                found = then[(step + 1) % 3](b, a)
            if step % 7 == 0:
                del a
                found = (found, then[step % 2](b, b))
            yield sum(part.double().sum().item() for part in flat(found))
            if step % 4:
                yield c.double().sum().item()

    yield from run()
    yield made(torch)


def flat(found):
    return [one for part in found for one in flat(part)] if isinstance(found, (tuple, list)) else [found]


def training(torch):
    """Forward and backward, of a network with convolutions, with a batch of another size at times."""
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(32 * 49, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
    ).cuda()
    step_of = compiled(torch, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    kept = []
    for step in range(40):
        x = torch.randn(24 if step % 8 == 7 else 32, 3, 30, 30, device="cuda")
        out = step_of(x)
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        kept = [*kept[-5:], out.detach().clone()]
        yield loss.item()
    yield sum(one.double().sum().item() for one in kept)
    yield made(torch)


def with_history(torch):
    import torch._inductor.config as inductor

    with inductor.patch({"triton.cudagraph_trees_history_recording": True}):
        double = compiled(torch, lambda x: x * 2 + 1)
        for step in range(6):
            yield double(torch.full((3 << 20,), float(step), device="cuda")).double().sum().item()
    yield str(torch._C._cuda_isHistoryEnabled())


def pools(torch):
    """Pools that a program makes itself."""
    if not hasattr(torch.cuda, "MemPool"):
        return
    pool, other = torch.cuda.MemPool(), torch.cuda.MemPool()
    yield str(len({pool.id, other.id, torch.cuda.graph_pool_handle()}))
    yield pool.use_count()
    with torch.cuda.use_mem_pool(pool):
        kept = [torch.full((1 << 20,), float(number), device="cuda") for number in range(5)]
        yield pool.use_count()
    # Trees have pools of their own.
    double = compiled(torch, lambda x: x * 2 + kept[1][: len(x)])
    for step in range(9):
        torch.compiler.cudagraph_mark_step_begin()
        yield double(torch.full((1000 << step % 3,), float(step), device="cuda")).double().sum().item()
    yield sum(one.double().sum().item() for one in kept)
    outside = torch.full((1 << 20,), 9.0, device="cuda")
    held = [block for segment in pool.snapshot() for block in segment["blocks"] if block["state"] == "active_allocated"]
    yield len(held)
    yield len(other.snapshot())
    places = {one.data_ptr() for one in kept}
    del kept[1:]
    with torch.cuda.use_mem_pool(pool):
        again = torch.full((1 << 20,), 7.0, device="cuda")
    yield str(again.data_ptr() in places)
    yield str(outside.data_ptr() in places)
    yield (again.sum() + kept[0].sum() + outside.sum()).item()
    del other
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        more = again * 3
    graph.replay()
    yield more.sum().item()
    # One that is used while a graph is captured, which keeps it from PyTorch 2.14 on, once.
    third, graph = torch.cuda.MemPool(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with torch.cuda.use_mem_pool(third):
            inner = again * 5
        with torch.cuda.use_mem_pool(third):
            outer = inner + 1
    keeps = hasattr(graph, "_retain_pool")
    yield third.use_count() - keeps
    if keeps:
        yield str(third.id in graph.pools())
    for value in (1.0, 2.0):
        again.fill_(value)
        graph.replay()
        yield outer.sum().item()
    graph.reset()
    yield third.use_count()
