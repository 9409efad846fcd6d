"""The program of c_abi.py that asks torch.cuda about memory: the answers are what they are with PyTorch's own allocator."""

import collections
import tempfile

from figures import peaks, told, torch_on, torch_peaks


def answers_program(folder):
    torch, allocator = torch_on(folder, 6)
    results = [*figures(torch), *history(torch), *profiled(torch), *searched(torch)]
    ended = peaks(allocator) | told(allocator, folder) if allocator else torch_peaks(torch)
    return {"losses": [str(one) for one in results]} | ended


def figures(torch):
    cuda = torch.cuda
    yield cuda.memory_allocated(), cuda.memory_stats()

    def ask():
        stats = cuda.memory_stats()
        asked = [f"{of}.all.{what}" for of in ("allocation", "requested_bytes") for what in ("current", "peak", "allocated", "freed")]
        assert cuda.memory_allocated() == stats["allocated_bytes.all.current"] <= cuda.memory_reserved()
        assert cuda.max_memory_allocated() == stats["allocated_bytes.all.peak"] <= cuda.max_memory_reserved()
        return [stats[name] for name in (*asked, "num_ooms")]

    kept = [torch.empty(number * 10_000, device="cuda") for number in range(1, 100)]
    yield sorted(cuda.memory_stats())
    yield ask()
    del kept[10:]
    yield ask()
    cuda.reset_peak_memory_stats()
    yield ask()
    cuda.reset_accumulated_memory_stats()
    kept.append(torch.empty(1 << 22, device="cuda"))
    yield ask()
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *what: seen.append((*what, len(cuda.memory._snapshot()["segments"]))))
    try:
        torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        yield ask()
    (device, size, total, free, segments), = seen
    yield device, size, total, 0 < free < total, segments > 0
    # The figures differ, but not what there is.
    yield [line.split("|")[1] for line in cuda.memory_summary().splitlines() if line.count("|") > 3]
    yield len(cuda.memory_snapshot()) > 0
    try:
        cuda.memory_stats(99)
    except Exception as error:  # Of which kind depends on what it is.
        yield isinstance(error, (RuntimeError, AssertionError))
    if hasattr(torch.accelerator, "memory_stats"):
        yield sorted(torch.accelerator.memory_stats())
        yield torch.accelerator.memory_allocated() == cuda.memory_allocated()
        torch.accelerator.reset_peak_memory_stats()
        yield torch.accelerator.max_memory_allocated() == cuda.memory_allocated()


def history(torch):
    memory = torch.cuda.memory
    memory._record_memory_history(max_entries=10_000)
    kept = [torch.empty(number * 100_000, device="cuda") for number in range(1, 21)]
    del kept[::2]
    shot = memory._snapshot()
    assert sum(segment["total_size"] for segment in shot["segments"]) == torch.cuda.memory_reserved()
    blocks = [block for segment in shot["segments"] for block in segment["blocks"]]
    yield sorted(block["requested_size"] for block in blocks if block["state"] == "active_allocated")
    assert len(shot["device_traces"]) == torch.cuda.device_count()
    events = collections.Counter(event["action"] for event in shot["device_traces"][0])
    yield [events[action] for action in ("alloc", "free_requested", "free_completed")]
    # Where in this file, by the innermost of its frames.
    made = [event["frames"] for event in shot["device_traces"][0] if event["action"] == "alloc"]
    here = [next(frame for frame in frames if frame["filename"] == __file__) for frames in made]
    yield sorted({(frame["name"].split(".")[-1], frame["line"]) for frame in here})
    with tempfile.NamedTemporaryFile() as file:
        memory._dump_snapshot(file.name)
        yield file.seek(0, 2) > 1000
    from torch.cuda._memory_viz import segment_plot, trace_plot

    yield [len(plot(shot)) > 1000 for plot in (segment_plot, trace_plot)]
    if hasattr(memory, "_set_memory_metadata"):
        memory._set_memory_metadata("first")
        kept.append(torch.empty(77_000, device="cuda"))
        yield memory._get_memory_metadata()
        for text in ("second", ""):
            memory._set_memory_metadata(text)
            kept.append(torch.empty(78_000, device="cuda"))
        made = [event for event in memory._snapshot()["device_traces"][0] if event["action"] == "alloc"]
        yield [event["user_metadata"] for event in made], memory._get_memory_metadata()
    if hasattr(memory, "_allocation_traceback"):
        frames = memory._allocation_traceback(kept[-1].untyped_storage().data_ptr())
        yield next(frame["line"] for frame in frames if frame["filename"] == __file__), memory._allocation_traceback(512)
    memory._record_memory_history(None)
    memory._record_memory_history(True, trace_alloc_max_entries=100)
    del kept
    shot = memory._snapshot()
    yield collections.Counter(event["action"] for event in shot["device_traces"][0])["free_completed"]
    memory._record_memory_history(False)


def profiled(torch):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        kept = [torch.empty(number * 100, device="cuda") for number in range(1, 100)]
        del kept[::2]
        kept[-1] = kept[-1] + 1
    yield sorted((event.key, event.self_device_memory_usage) for event in seen.key_averages() if event.self_device_memory_usage)


def searched(torch):
    """cuDNN looks for the fastest convolution, and asks the allocator in C++ how large its workspace may be."""
    yield torch.cuda.get_per_process_memory_fraction()
    torch.manual_seed(7)
    layers = [layer for _ in range(3) for layer in (torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).cuda()
    batches = [torch.randn(8, 32, side, side, device="cuda") for side in (32, 48, 56)]

    def losses():
        for batch in batches:
            loss = model(batch).square().mean()
            loss.backward()
            yield loss.item()

    expected = list(losses())
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = True
    # What is fastest may be another one each time.
    yield [abs(found - known) < 0.02 * known for found, known in zip(losses(), expected)]
