"""Programs of c_abi.py whose streams end without a word, or read what was freed before they are waited for. PyTorch's allocator runs them well:
it asks nothing of a block's stream after the free, and gives what is free to its own stream only."""

import ctypes
import threading

from torch_streams import streams_program

MIB = 1 << 20
DELAY = 20_000_000


class External:
    """A stream that another library makes and destroys, for PyTorch to use."""

    def __init__(self, torch):
        self.torch, self.runtime = torch, ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
        self.handle = ctypes.c_void_p()
        assert self.runtime.cudaStreamCreateWithFlags(ctypes.byref(self.handle), 1) == 0

    def stream(self):
        return self.torch.cuda.ExternalStream(self.handle.value)

    def destroy(self):
        assert self.runtime.cudaStreamSynchronize(self.handle) == 0
        assert self.runtime.cudaStreamDestroy(self.handle) == 0


def dead(torch):
    """Memory of a stream whose owner waits for it and destroys it; others allocate afterwards."""
    kept, sums = [], []
    for step in range(50):
        external = External(torch)
        with torch.cuda.stream(external.stream()):
            large, small = torch.ones(8 * MIB, device="cuda"), torch.ones(1000, device="cuda")
            small += step
            sums.append(small.sum().clone())
        external.stream().synchronize()
        del large, small
        external.destroy()
        others = [torch.empty((step % 7 + 1) * MIB, device="cuda").fill_(step + at) for at in range(8)]
        sums += [other[:: MIB // 2].sum() for other in others]
        kept.append(others[0])
    return sums + [one.double().sum() for one in kept]


def outlives(torch):
    """Tensors that outlive their stream are freed on another thread."""
    sums, kept = [], []
    for step in range(60):
        external = External(torch)
        with torch.cuda.stream(external.stream()):
            kept.append(torch.full((4 * MIB + step,), float(step), device="cuda"))
        external.destroy()
        if len(kept) == 6:
            sums += [one.double().sum() for one in kept]
            thread = threading.Thread(target=kept.clear)
            thread.start()
            thread.join()
        sums.append(torch.full((3 * MIB,), float(step), device="cuda").double().sum())
    return sums


def recorded(torch):
    """Two streams that another library destroys use what PyTorch allocated and frees later: it is not reused before they are done."""
    sums = []
    for step in range(40):
        external, side = External(torch), torch.cuda.Stream()
        x = torch.full((16 * MIB,), float(step), device="cuda")
        for stream in (external.stream(), side):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(DELAY)
                sums.append(x.double().sum())
            x.record_stream(stream)
        del x
        other = torch.full((16 * MIB,), -1.0, device="cuda")
        external.destroy()
        side.synchronize()
        sums.append(other.sum())
    return sums


def wide(torch):
    """A block of stream A is freed while B reads it; C allocates; A waits for B before it allocates again."""
    a, b, c = (torch.cuda.Stream() for _ in range(3))
    sums = []
    torch.cuda.synchronize()
    for step in range(60):
        with torch.cuda.stream(a):
            x = torch.full((16 * MIB,), float(step + 1), device="cuda")
        a.synchronize()
        with torch.cuda.stream(b):
            torch.cuda._sleep(DELAY)
            y = x.clone()
        del x
        with torch.cuda.stream(c):
            z = torch.full((16 * MIB,), -1.0, device="cuda")
        a.wait_stream(b)
        torch.cuda.synchronize()
        sums += [y.double().sum(), z.double().sum()]
        del y, z
    return sums


PROGRAMS = {program.__name__: streams_program(program) for program in (dead, outlives, recorded, wide)}
