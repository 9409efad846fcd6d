#!/usr/bin/env python3
"""What a process may do with its threads, its graphs and its end without harm from the allocator.

    hazards.py DIR        with DIR/libgpumem_alloc.so; needs PyTorch

Exit code 0 when all passed.
"""

import ctypes
import os
import subprocess
import sys
import threading

from figures import allocator_in

GLOBAL = 0
MIB = 1 << 20


def install(folder):
    import torch

    allocator = allocator_in(folder)
    torch.cuda.memory.change_current_allocator(allocator)
    return torch, allocator.library


def runtime(torch):
    return ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")


def untold_capture(folder):
    """A thread captures a graph of which nobody tells the allocator, in the mode that any careless call of any thread ends; others allocate,
    free what other streams use, and look what is done."""
    torch, library = install(folder)
    cuda = runtime(torch)
    stream, ends = ctypes.c_void_p(), ctypes.c_void_p()
    for one in (stream, ends):
        assert cuda.cudaStreamCreateWithFlags(ctypes.byref(one), 1) == 0
    buffer = torch.zeros(MIB, device="cuda")
    sides = [torch.cuda.Stream() for _ in range(4)]
    external = torch.cuda.ExternalStream(ends.value)
    # What there is from now on is enough: memory that has to be waited for would end the capture, whoever waits.
    held = [torch.empty(64 * MIB, device="cuda", dtype=torch.uint8) for _ in range(40)]
    for side in (*sides, external):
        with torch.cuda.stream(side):
            held += [torch.empty(64 * MIB, device="cuda", dtype=torch.uint8) for _ in range(6)]
    del held
    torch.cuda.synchronize()

    def others(errors):
        try:
            for step in range(300):
                side = (*sides, external)[step % 5]
                x = torch.empty((step % 5 + 1) * 3 * MIB, device="cuda", dtype=torch.uint8)
                x.record_stream(side)
                with torch.cuda.stream(side):
                    y = torch.empty((step % 7 + 1) * MIB + step, device="cuda", dtype=torch.uint8)
                del x, y
        except Exception as error:
            errors.append(error)

    errors = []
    assert cuda.cudaStreamBeginCapture(stream, GLOBAL) == 0
    assert cuda.cudaMemsetAsync(ctypes.c_void_p(buffer.data_ptr()), 1, ctypes.c_size_t(4 * MIB), stream) == 0
    threads = [threading.Thread(target=others, args=(errors,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    others(errors)
    graph = ctypes.c_void_p()
    code = cuda.cudaStreamEndCapture(stream, ctypes.byref(graph))
    assert code == 0 and graph.value and not errors, (code, errors)
    assert library.gpumem_error_count() == 0


def other_thread(folder):
    """Memory is freed, and recorded, by a thread that never used CUDA, and has no context."""
    torch, library = install(folder)
    cuda = ctypes.CDLL("libcuda.so.1")
    tensors = [torch.full((MIB + step,), float(step), device="cuda") for step in range(50)]
    addresses = [library.gpumem_alloc(5 * MIB, 0, None) for _ in range(20)]
    side = torch.cuda.Stream().cuda_stream
    context = ctypes.c_void_p(1)

    def free():
        for address in addresses:
            library.gpumem_record_stream(address, side)
            library.gpumem_free(address, 5 * MIB, 0, None)
        tensors.clear()
        cuda.cuCtxGetCurrent(ctypes.byref(context))

    thread = threading.Thread(target=free)
    thread.start()
    thread.join()
    assert not context.value, "the thread has a context now"
    assert library.gpumem_error_count() == 0
    assert torch.ones(1000, device="cuda").sum().item() == 1000


def leaves(folder):
    """The process ends with work queued that uses memory of two streams."""
    torch, library = install(folder)
    side = torch.cuda.Stream()
    x = torch.ones(64 * MIB, device="cuda")
    with torch.cuda.stream(side):
        torch.cuda._sleep(2_000_000_000)
        y = x * 2
    x.record_stream(side)
    del x
    z = torch.ones(64 * MIB, device="cuda") + 1


def forks(folder):
    """A child of fork() frees what it inherited and ends; the parent goes on."""
    torch, library = install(folder)
    side = torch.cuda.Stream()
    x = torch.ones(8 * MIB, device="cuda")
    x.record_stream(side)
    with torch.cuda.stream(side):
        torch.cuda._sleep(500_000_000)
    child = os.fork()
    if child == 0:
        del x
        library.gpumem_empty_cache(-1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert x.sum().item() == 8 * MIB
    del x
    assert torch.ones(8 * MIB, device="cuda").sum().item() == 8 * MIB
    assert library.gpumem_error_count() == 0


PROGRAMS = [untold_capture, other_thread, leaves, forks]


def main():
    folder, *program = sys.argv[1:]
    if program:
        return next(one for one in PROGRAMS if one.__name__ == program[0])(folder)
    failed = False
    for one in PROGRAMS:
        run = subprocess.run([sys.executable, __file__, folder, one.__name__], capture_output=True, text=True, timeout=120)
        failed |= run.returncode != 0 or "gpumem" in run.stderr
        print(f"{'PASS' if run.returncode == 0 and 'gpumem' not in run.stderr else 'FAIL'} {one.__name__} (exit {run.returncode})")
        if run.returncode or run.stderr:
            print(run.stdout[-2000:], run.stderr[-3000:])
    sys.exit(failed)


if __name__ == "__main__":
    main()
