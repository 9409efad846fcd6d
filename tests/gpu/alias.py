#!/usr/bin/env python3
"""The same physical memory at two addresses, as stitched memory has it: what is written by one is read by the other, in stream order.

    alias.py        on GPU 0; needs CuPy

CUDA says of such aliases that a write is seen by the other address once the kernel that wrote has ended ("Virtual Aliasing Support" in the
programming guide). Kernels of a stream follow each other without a pause, by programmatic dependent launch before the one before has ended,
and within a graph; the other address may be in a cache. So each of these is tried: a kernel reads all by one address, the next one writes
all by the other, the next one reads by the first. Every word is compared. Exit code 0: none was wrong.
"""

import ctypes
import sys

ROUNDS = 400
SIZES = [4 << 10, 256 << 10, 2 << 20, 32 << 20]
MIB = 1 << 20

SOURCE = r"""
#ifdef DEPENDENT
#define BEGIN asm volatile("griddepcontrol.launch_dependents;"); asm volatile("griddepcontrol.wait;" ::: "memory");
#else
#define BEGIN
#endif

extern "C" __global__ void put(unsigned* words, size_t count, const unsigned* step, unsigned add) {
    BEGIN
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        words[i] = (unsigned(i) * 2654435761u) ^ (*step + add);
}

extern "C" __global__ void check(const unsigned* words, size_t count, const unsigned* step, unsigned add, unsigned long long* wrong) {
    BEGIN
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        if (words[i] != ((unsigned(i) * 2654435761u) ^ (*step + add))) atomicAdd(wrong, 1ull);
}

extern "C" __global__ void next(unsigned* step) {
    BEGIN
    *step += 2;
}
"""


class Prop(ctypes.Structure):
    """CUmemAllocationProp"""

    _fields_ = [(name, ctypes.c_int) for name in ("type", "handles", "location", "device")] + [
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    ]


class Config(ctypes.Structure):
    """CUlaunchConfig"""

    _fields_ = [(name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")] + [
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    ]


class Attribute(ctypes.Structure):
    """CUlaunchAttribute"""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60)]


PROGRAMMATIC_STREAM_SERIALIZATION = 6


class Driver:
    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def __call__(self, name: str, *arguments) -> None:
        code = getattr(self.library, name)(*arguments)
        assert code == 0, f"{name}: {code}"


def two_addresses(driver: Driver, size: int) -> tuple[int, int]:
    """One chunk, mapped twice."""
    prop, handle = Prop(type=1, location=1), ctypes.c_uint64()
    unit = ctypes.c_size_t()
    driver("cuMemGetAllocationGranularity", ctypes.byref(unit), ctypes.byref(prop), 0)
    size = -(-size // unit.value) * unit.value
    driver("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(prop), ctypes.c_uint64(0))
    addresses = []
    for _ in range(2):
        address = ctypes.c_uint64()
        driver("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
        driver("cuMemMap", address, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        access = (ctypes.c_int * 3)(1, 0, 3)
        driver("cuMemSetAccess", address, ctypes.c_size_t(size), access, ctypes.c_size_t(1))
        addresses.append(address.value)
    return tuple(addresses)


class Launcher:
    """Launches on a stream, each kernel as soon as it may."""

    def __init__(self, driver: Driver, module, stream, dependent: bool) -> None:
        self.driver, self.stream, self.dependent = driver, stream, dependent
        self.functions = {name: module.get_function(name).kernel.ptr for name in ("put", "check", "next")}

    def __call__(self, name: str, count: int, *arguments) -> None:
        values = [ctypes.c_uint32(value) if name != "next" and at == 3 else ctypes.c_uint64(value) for at, value in enumerate(arguments)]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        attribute = Attribute(id=PROGRAMMATIC_STREAM_SERIALIZATION, value=1)
        blocks = 1 if name == "next" else min(-(-count // 256), 132)
        config = Config(blocks, 1, 1, 1 if name == "next" else 256, 1, 1, 0, self.stream, ctypes.addressof(attribute), int(self.dependent))
        self.driver("cuLaunchKernelEx", ctypes.byref(config), ctypes.c_void_p(self.functions[name]), pointers, None)


def rounds(launch: Launcher, count: int, addresses: tuple[int, int], step: int, wrong: int, number: int) -> None:
    a, b = addresses
    for _ in range(number):
        # What b had before is in whatever cache.
        launch("check", count, b, count, step, 0, wrong)
        launch("put", count, a, count, step, 1)
        launch("check", count, b, count, step, 1, wrong)
        launch("put", count, b, count, step, 2)
        launch("check", count, a, count, step, 2, wrong)
        launch("next", count, step)


def main() -> None:
    import cupy

    driver = Driver()
    cupy.zeros(1)
    can = int(cupy.cuda.Device().compute_capability) >= 90
    failed = False
    for size in SIZES:
        addresses = two_addresses(driver, size)
        count = size // 4
        for dependent in [False, True][: 1 + can]:
            module = cupy.RawModule(code=SOURCE, options=("-DDEPENDENT",) if dependent else ())
            for graph in (False, True):
                stream = cupy.cuda.Stream(non_blocking=True)
                step, wrong = cupy.zeros(1, dtype=cupy.uint32), cupy.zeros(1, dtype=cupy.uint64)
                cupy.cuda.Device().synchronize()
                launch = Launcher(driver, module, stream.ptr, dependent)
                launch("put", count, addresses[0], count, step.data.ptr, 0)
                arguments = (count, addresses, step.data.ptr, wrong.data.ptr)
                if graph:
                    with stream:
                        stream.begin_capture()
                        rounds(launch, *arguments, 20)
                        captured = stream.end_capture()
                    for _ in range(ROUNDS // 20):
                        captured.launch(stream)
                else:
                    rounds(launch, *arguments, ROUNDS)
                stream.synchronize()
                how = ("in a graph" if graph else "one after the other") + (", by dependent launch" if dependent else "")
                found, done = int(wrong[0]), int(step[0]) // 2
                failed |= found > 0 or done != ROUNDS
                verdict = "FAIL" if found or done != ROUNDS else "PASS"
                print(f"{verdict} {size >> 10} KiB at two addresses, {how}: {found} wrong of {3 * done * count} words")
    if not can:
        print("SKIPPED dependent launch: this GPU has none")
    sys.exit(failed)


if __name__ == "__main__":
    main()
