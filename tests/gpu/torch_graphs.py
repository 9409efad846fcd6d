"""The program of c_abi.py that replays CUDA graphs: some that share a pool, the layers of a network, whole steps of its training.

And it fails to capture some.
"""

import gc
import threading

from figures import adds_up, dashboard, peaks, torch_on, torch_peaks

WIDTH = 512


def graphs_program(folder):
    torch, allocator = torch_on(folder, 6)
    results = []
    for part in (shared_pool, layers, whole_steps, lambda torch: failed_captures(torch, allocator), beside_a_failed_one):
        results += part(torch)
        # Graphs that the collector finds during a capture make it fail, from PyTorch 2.14 on.
        gc.collect()
    result = {"losses": [value.hex() for value in results]}
    if not allocator:
        return result | torch_peaks(torch)
    adds_up(allocator)
    return result | peaks(allocator) | {"dashboard": dashboard(allocator, folder), "errors": allocator.library.gpumem_error_count()}


def network(torch):
    nn = torch.nn
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(3)], nn.Linear(WIDTH, 10)).cuda()


def warm(torch, work):
    """As PyTorch wants it before a capture: on another stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)


def shared_pool(torch):
    """One graph for each size of batch, as servers have them: what any of them computes is what the network computes without."""
    model = network(torch)
    pool = torch.cuda.graph_pool_handle()
    batches = [torch.randn(size, WIDTH, device="cuda") for size in (256, 64, 16)]
    graphs = []
    with torch.no_grad():
        warm(torch, lambda: [model(x) for x in batches])
        for x in batches:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                y = model(x)
            graphs.append((graph, x, y))
        for step in range(20):
            for graph, x, y in graphs:
                x.fill_(step / 10)
                noise = torch.full(((step + 1) << 20,), float("nan"), device="cuda")
                del noise
                graph.replay()
                assert torch.equal(y, model(x)), step
                yield y.double().sum().item()
    # The others' memory stays when one goes.
    graphs.pop(0)
    torch.cuda.empty_cache()
    for graph, x, y in graphs:
        graph.replay()
        yield y.double().sum().item()


def layers(torch):
    """Forward and backward are a graph each."""
    model = network(torch)
    graphed = torch.cuda.make_graphed_callables(model, (torch.randn(64, WIDTH, device="cuda", requires_grad=True),))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(20):
        loss = graphed(torch.randn(64, WIDTH, device="cuda", requires_grad=True)).square().mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        yield loss.item()


def whole_steps(torch):
    """Forward, backward and the optimizer are one graph."""
    model = network(torch)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    x = torch.randn(128, WIDTH, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    warm(torch, step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for _ in range(30):
        x.copy_(torch.randn(128, WIDTH, device="cuda"))
        graph.replay()
        yield loss.item()


def failed_captures(torch, allocator):
    """PyTorch tells its allocator of no capture that fails: what comes next is right, and nothing stays held. Last, as PyTorch's random
    numbers do not come after such a capture."""
    x = torch.ones(8 << 20, device="cuda")
    main = torch.cuda.current_stream()

    def reserved():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        if allocator:
            return allocator.stats().all.reserved_bytes.current

    before = reserved()
    for n, work in enumerate((lambda: None, lambda: (x + 1) * 3, lambda: x + 1)):
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                y = work()
                torch.cuda.synchronize()
            raise AssertionError("a capture was waited for")
        except RuntimeError:
            # PyTorch leaves the capture's.
            torch.cuda.set_stream(main)
        y = None
        assert reserved() == before, n
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = (x + n) * 2
        x.fill_(n)
        graph.replay()
        yield y.double().sum().item()
        del graph, y
        assert reserved() == before, n


def beside_a_failed_one(torch):
    """Two threads capture at the same time, and one waits for what it captures."""
    sums = []

    def capture(fails, both):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.full((8 << 20,), 3.0, device="cuda")
            stream.synchronize()
            both.wait(20)
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(capture_error_mode="thread_local")
            both.wait(20)
            y = x * 2
            if fails:
                for step in (stream.synchronize, graph.capture_end):
                    try:
                        step()
                        raise AssertionError("a capture was waited for")
                    except RuntimeError:
                        pass
                # As without a capture.
                del y
                torch.full((4 << 20,), float("nan"), device="cuda")
            both.wait(20)
            if not fails:
                z = y + 1
                graph.capture_end()
                graph.replay()
                sums.append(z.double().sum().item())

    for _ in range(3):
        both = threading.Barrier(2)
        threads = [threading.Thread(target=capture, args=(fails, both)) for fails in (False, True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(sums) == 3
    return sums
