//! What things cost in the model, in nanoseconds. The figures are of an H100 on PCIe 5 x16: use them as ratios.

use super::Processor;

/// A CPU page fault, without the copy. Measured on an H100 with driver 580: 64 MiB that are on the GPU take the CPU 13.1 ms to
/// touch page by page, of which the copy is 1.2 ms; the rest are 192 faults.
pub(super) const CPU_FAULT: u64 = 62_000;
/// A batch of GPU faults, without the copy. Measured in the same run: 64 MiB that are on the CPU take a kernel 6.1 ms, of which the
/// copy is 1.2 ms; the rest are 64 batches. (nvprof says 68 to 84 µs a batch on a P100.)
pub(super) const GPU_BATCH: u64 = 77_000;
/// How long a processor is held up that takes a bouncing page (`uvm_perf_thrashing_nap` times `_lapse_usec`).
pub(super) const NAP: u64 = 500_000;
/// The CPU's access to one word of a page that it reaches. An estimate: a miss of the TLB and of the caches.
pub(super) const CPU_PAGE: u64 = 100;

/// PCIe 5 x16, in bytes per microsecond: 55 GB/s. Published measurements of large copies are 57 GB/s.
const BUS: u64 = 55_000;
/// A kernel on local memory, in bytes per microsecond. gpu-benches measured 1.8 to 2 TB/s on an H100 PCIe.
const GPU_MEMORY: u64 = 2_000_000;
/// What one CPU core fills with zeroes, in bytes per microsecond. An estimate.
const CPU_ZEROES: u64 = 10_000;

/// Copying over the bus, or accessing memory on its other side.
pub(super) fn copy(bytes: u64) -> u64 {
    bytes * 1000 / BUS
}

/// A kernel's access to local memory.
pub(super) fn gpu(bytes: u64) -> u64 {
    bytes * 1000 / GPU_MEMORY
}

/// Filling new memory with zeroes.
pub(super) fn zeroes(who: Processor, bytes: u64) -> u64 {
    match who {
        Processor::Cpu => bytes * 1000 / CPU_ZEROES,
        Processor::Gpu => gpu(bytes),
    }
}
