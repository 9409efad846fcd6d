"""The program of c_abi.py that has too little memory: what it catches, and what PyTorch catches by itself, is what it is with PyTorch's
own allocator."""

import gc

from figures import peaks, told, torch_on, torch_peaks

MIB = 1 << 20


def limits_program(folder):
    torch, allocator = torch_on(folder, 5)
    results = [*batches(torch), *kinds(torch), *convolutions(torch, allocator)]
    # All that was refused is memory, and the program, or PyTorch, knew what to do.
    ended = peaks(allocator) | told(allocator, folder) if allocator else torch_peaks(torch)
    return {"losses": [str(one) for one in results]} | ended


def batches(torch):
    """A batch that is halved until it fits a part of the card."""
    torch.cuda.set_per_process_memory_fraction(4096 * MIB / torch.cuda.mem_get_info()[1])
    width = 2048
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(8)]).cuda()
    batch = 1 << 20
    while True:
        try:
            loss = model(torch.randn(batch, width, device="cuda")).square().mean()
            loss.backward()
            break
        except torch.OutOfMemoryError:
            loss = None
            batch //= 2
        model.zero_grad()
        gc.collect()
        torch.cuda.empty_cache()
    yield batch
    yield sum(p.grad.double().sum().item() for p in model.parameters()).hex()


def kinds(torch):
    """What cannot be had is PyTorch's own exception: here, in a hook of backward, which runs on another thread, and after both."""

    def far_too_much(_=None):
        return torch.empty(1 << 45, dtype=torch.uint8, device="cuda")

    def in_backward():
        x = torch.ones(1000, device="cuda", requires_grad=True)
        y = x * 2
        y.register_hook(far_too_much)
        y.sum().backward()

    for work in (far_too_much, in_backward, far_too_much):
        try:
            work()
            raise AssertionError("32 TiB were handed out")
        except torch.cuda.OutOfMemoryError as error:
            assert "CUDA out of memory." in str(error), error
            yield type(error).__name__


def convolutions(torch, allocator):
    """cuDNN is given less workspace where there is little memory, which PyTorch sees to when it catches what its own allocator throws."""
    total = torch.cuda.mem_get_info()[1]
    torch.use_deterministic_algorithms(False)
    for benchmark in (False, True):
        torch.backends.cudnn.benchmark = benchmark
        for kernel, channels in ((3, 256), (5, 64), (9, 64)):
            for left in (4096, 600, 120):
                torch.cuda.set_per_process_memory_fraction(1.0)
                layer = torch.nn.Conv2d(channels, channels, kernel, padding=kernel // 2).cuda()
                # A shape of its own each time: PyTorch remembers what it found for one.
                x = torch.randn(16 + left % 7, channels, 112, 112, device="cuda", requires_grad=True)
                gc.collect()
                torch.cuda.empty_cache()
                if allocator:
                    held = allocator.stats().all.reserved_bytes.current
                else:
                    held = torch.cuda.memory_reserved()
                torch.cuda.set_per_process_memory_fraction((held + 3 * x.nbytes + left * MIB) / total)
                layer(x).sum().backward()
                yield bool(x.grad.isfinite().all())
                del layer, x
    torch.cuda.set_per_process_memory_fraction(1.0)
