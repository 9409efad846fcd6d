#!/usr/bin/env python3
"""Memory that others reach. Another process by CUDA IPC: plain segments can be shared, stitched memory cannot. Network cards by GPUDirect
RDMA: stitched memory too, unless it is asked not to be.

    ipc.py DIR                 with DIR/libgpumem_alloc.so
    ipc.py open HANDLE OFFSET  the other process: what it reads there
    ipc.py rdma DIR OPTIONS    whether the driver says that network cards reach the memory
"""

import ctypes
import os
import subprocess
import sys
from ctypes import byref, c_char, c_int, c_size_t, c_uint, c_uint64, c_void_p

WORD = 0x600DCAFE
BYTES = 1 << 20
IS_GPU_DIRECT_RDMA_CAPABLE = 15


class Handle(ctypes.Structure):
    _fields_ = [("bytes", c_char * 64)]


def driver():
    """The driver, with the first device's primary context current."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, device = c_void_p(), c_int()
    done(cuda.cuInit(0))
    done(cuda.cuDeviceGet(byref(device), 0))
    done(cuda.cuDevicePrimaryCtxRetain(byref(context), device))
    done(cuda.cuCtxSetCurrent(context))
    return cuda


def done(code):
    if code != 0:
        raise RuntimeError(f"CUDA error {code}")


def open_there(handle, offset):
    cuda, base, word = driver(), c_uint64(), c_uint()
    cuda.cuIpcOpenMemHandle_v2.argtypes = [c_void_p, Handle, c_uint]
    done(cuda.cuIpcOpenMemHandle_v2(byref(base), Handle.from_buffer_copy(bytes.fromhex(handle)), 1))
    done(cuda.cuMemcpyDtoH_v2(byref(word), c_uint64(base.value + int(offset)), c_size_t(4)))
    print(word.value)


def share(folder, segments):
    """What another process reads, or None when the memory cannot be shared."""
    os.environ["GPUMEM_ALLOC_CONF"] = f"segments:{segments}"
    library = ctypes.CDLL(f"{folder}/libgpumem_alloc.so")
    library.gpumem_alloc.restype = library.gpumem_base_alloc.restype = c_void_p
    cuda, base_bytes, handle = driver(), c_size_t(), Handle()
    # Two: the second lies somewhere in the driver's allocation.
    blocks = [library.gpumem_alloc(c_size_t(BYTES), 0, None) for _ in range(2)]
    assert all(blocks), "no memory"
    done(cuda.cuMemsetD32_v2(c_uint64(blocks[1]), c_uint(WORD), c_size_t(BYTES // 4)))
    done(cuda.cuCtxSynchronize())
    base = library.gpumem_base_alloc(c_void_p(blocks[1]), byref(base_bytes))
    if base is None or cuda.cuIpcGetMemHandle(byref(handle), c_uint64(base)) != 0:
        return None
    other = [sys.executable, __file__, "open", bytes(handle).hex(), str(blocks[1] - base)]
    return int(subprocess.run(other, capture_output=True, check=True, text=True).stdout)


def reached_by_cards(folder, options):
    os.environ["GPUMEM_ALLOC_CONF"] = options
    library = ctypes.CDLL(f"{folder}/libgpumem_alloc.so")
    library.gpumem_alloc.restype = c_void_p
    cuda, capable = driver(), c_int(-1)
    block = library.gpumem_alloc(c_size_t(64 * BYTES), 0, None)
    assert block, "no memory"
    done(cuda.cuPointerGetAttribute(byref(capable), IS_GPU_DIRECT_RDMA_CAPABLE, c_uint64(block)))
    print(capable.value)


def main():
    if sys.argv[1] == "open":
        return open_there(*sys.argv[2:])
    if sys.argv[1] == "rdma":
        return reached_by_cards(*sys.argv[2:])
    if len(sys.argv) == 3:
        print(share(*sys.argv[1:]))
        return None
    failed = False
    # A process each: the configuration is read once.
    for segments, expected in (("plain", str(WORD)), ("stitched", "None")):
        run = subprocess.run([sys.executable, __file__, sys.argv[1], segments], capture_output=True, text=True)
        passed = run.stdout.split()[-1:] == [expected]
        failed |= not passed
        print(f"{'PASS' if passed else 'FAIL'} CUDA IPC, {segments}: read {run.stdout.strip()}, expected {expected}")
        if not passed:
            print(run.stderr)
    cannot = False
    for options, expected in (("gpu_direct_rdma:True", "1"), ("segments:stitched", "1"), ("gpu_direct_rdma:False", "0"), ("segments:plain", "1")):
        run = subprocess.run([sys.executable, __file__, "rdma", sys.argv[1], options], capture_output=True, text=True)
        # A card that cannot is told so, and has its defaults.
        cannot |= "gpu_direct_rdma: this device cannot" in run.stderr
        passed = cannot or run.stdout.split()[-1:] == [expected]
        failed |= not passed
        print(f"{'SKIPPED' if cannot else 'PASS' if passed else 'FAIL'} GPUDirect RDMA, {options}: {run.stdout.strip()}, expected {expected}")
        if not passed:
            print(run.stderr)
    sys.exit(failed)


if __name__ == "__main__":
    main()
