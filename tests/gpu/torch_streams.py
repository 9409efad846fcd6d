"""The programs of c_abi.py whose memory is used by several streams while the GPU is behind: nothing is waited for that does not have to be."""

import random
import threading
import time

from figures import adds_up, dashboard, peaks, torch_on, torch_peaks

WIDTH = 1024


def network(torch, layers=6):
    block = lambda: torch.nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True)
    return torch.nn.Sequential(*[block() for _ in range(layers)]).cuda().bfloat16()


def batch(torch, sizes, number, most=700):
    """A batch of a size of its own."""
    shape = (sizes.randint(1, 8), sizes.randint(16, most), WIDTH)
    return torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(number)).bfloat16()


def train_once(torch, model, optimizer, x):
    loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def prefetch(torch):
    """The next batch is copied and converted on a stream of its own while the model trains on this one."""
    model, copies, sizes = network(torch), torch.cuda.Stream(), random.Random(1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    host = torch.randn(8, 700, WIDTH).pin_memory()

    def load():
        with torch.cuda.stream(copies):
            x = host[: sizes.randint(1, 8), : sizes.randint(64, 700)].cuda(non_blocking=True)
            return x.sub(0.1).div(1.1).bfloat16()

    x, losses = load(), []
    for _ in range(60):
        torch.cuda.current_stream().wait_stream(copies)
        x.record_stream(torch.cuda.current_stream())
        now, x = x, load()
        losses.append(train_once(torch, model, optimizer, now))
    return losses


def serving(torch):
    """Four threads answer requests on a stream each, two behind at most."""
    model, answers = network(torch).eval(), {}
    torch.cuda.synchronize()

    def serve(thread):
        sizes, stream, events, sums = random.Random(thread), torch.cuda.Stream(), [], []
        with torch.no_grad(), torch.cuda.stream(stream):
            for number in range(80):
                sums.append(model(batch(torch, sizes, thread * 1000 + number)).float().sum())
                events.append(stream.record_event())
                if len(events) > 2:
                    events.pop(0).synchronize()
        stream.synchronize()
        answers[thread] = sums

    threads = [threading.Thread(target=serve, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answer for thread in range(4) for answer in answers[thread]]


def many_streams(torch):
    """Each request is answered on the next of sixteen streams, and its answer read twelve later."""
    model, sizes, sums, waiting = network(torch).eval(), random.Random(5), [], []
    streams = [torch.cuda.Stream() for _ in range(16)]
    torch.cuda.synchronize()
    for number in range(300):
        stream = streams[number % 16]
        with torch.no_grad(), torch.cuda.stream(stream):
            waiting.append((model(batch(torch, sizes, number)).float().sum(-1), stream.record_event()))
        if len(waiting) > 12:
            answer, event = waiting.pop(0)
            event.synchronize()
            sums.append(answer.sum())
            answer.record_stream(torch.cuda.current_stream())
            del answer
    return sums


def two_models(torch):
    """Two models train on a stream each, the second one on what the first one makes."""
    models = [network(torch, 3) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), 1e-3) for model in models]
    first, second, sizes, losses = torch.cuda.Stream(), torch.cuda.Stream(), random.Random(4), []
    torch.cuda.synchronize()
    for step in range(50):
        with torch.cuda.stream(first):
            x = batch(torch, sizes, step)
            losses.append(train_once(torch, models[0], optimizers[0], x))
            made = models[0](x).detach()
        second.wait_stream(first)
        with torch.cuda.stream(second):
            losses.append(train_once(torch, models[1], optimizers[1], made))
        made.record_stream(second)
        del x, made
    return losses


def streams_program(program):
    """What c_abi.py runs of one of them."""

    def run(folder):
        torch, allocator = torch_on(folder, 1)
        start = time.monotonic()
        results = program(torch)
        torch.cuda.synchronize()
        result = {"seconds": time.monotonic() - start, "losses": [value.item().hex() for value in results]}
        if allocator:
            adds_up(allocator)
            return result | peaks(allocator) | {"dashboard": dashboard(allocator, folder), "errors": allocator.library.gpumem_error_count()}
        return result | torch_peaks(torch)

    return run


PROGRAMS = {
    "prefetch": streams_program(prefetch),
    "serving": streams_program(serving),
    "many_streams": streams_program(many_streams),
    "two_models": streams_program(two_models),
}
