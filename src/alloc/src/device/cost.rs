//! What driver calls cost: a model, so that a policy can be judged without a GPU.
//!
//! Measured on one H100 80GB HBM3, driver 580.159, CUDA 13.0 (medians; they move by tens of percent between runs).
//! Virtual memory costs per chunk, not per byte.

/// The driver calls that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
#[non_exhaustive]
pub enum Call {
    /// `cuMemAlloc`
    Alloc,
    /// `cuMemFree`
    Free,
    /// `cuMemAddressReserve`
    Reserve,
    /// `cuMemAddressFree`
    Unreserve,
    /// `cuMemCreate`
    Create,
    /// `cuMemRelease`
    Release,
    /// `cuMemMap`
    Map,
    /// `cuMemSetAccess`
    SetAccess,
    /// `cuMemUnmap`
    Unmap,
    /// `cuStreamQuery`
    QueryStream,
    /// `cuEventRecord`
    Record,
    /// `cuEventQuery`
    Query,
    /// `cuCtxSynchronize`
    Synchronize,
    /// `cuMemGetInfo`
    MemoryInfo,
    /// `cuMemcpy` and `cuMemset`
    Copy,
}

impl Call {
    /// Number of calls.
    pub const COUNT: usize = Call::Copy as usize + 1;

    /// Every call.
    pub const ALL: [Call; Call::COUNT] = [
        Call::Alloc,
        Call::Free,
        Call::Reserve,
        Call::Unreserve,
        Call::Create,
        Call::Release,
        Call::Map,
        Call::SetAccess,
        Call::Unmap,
        Call::QueryStream,
        Call::Record,
        Call::Query,
        Call::Synchronize,
        Call::MemoryInfo,
        Call::Copy,
    ];

    /// The driver's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Call::Alloc => "cuMemAlloc",
            Call::Free => "cuMemFree",
            Call::Reserve => "cuMemAddressReserve",
            Call::Unreserve => "cuMemAddressFree",
            Call::Create => "cuMemCreate",
            Call::Release => "cuMemRelease",
            Call::Map => "cuMemMap",
            Call::SetAccess => "cuMemSetAccess",
            Call::Unmap => "cuMemUnmap",
            Call::QueryStream => "cuStreamQuery",
            Call::Record => "cuEventRecord",
            Call::Query => "cuEventQuery",
            Call::Synchronize => "cuCtxSynchronize",
            Call::MemoryInfo => "cuMemGetInfo",
            Call::Copy => "cuMemcpy",
        }
    }

    /// Modelled nanoseconds of one call over `bytes` of memory in `chunks` physical chunks.
    pub(crate) fn nanoseconds(self, bytes: u64, chunks: u64) -> u64 {
        let mib = bytes >> 20;
        match self {
            // cudaMalloc + cudaFree: 93 µs up to 2 MiB, 156 at 64 MiB, 869 at 1 GiB; half each.
            Call::Alloc | Call::Free => 46_000 + 380 * mib,
            Call::Reserve | Call::Unreserve => 27_000,
            Call::Create => 13_500,
            Call::Release => 25_000,
            Call::Map => 1_000,
            Call::SetAccess => 32_500 * chunks,
            Call::Unmap => 21_000 * chunks,
            Call::Record => 320,
            // The first was not measured: it asks the same of a stream.
            Call::QueryStream | Call::Query => 290,
            Call::Synchronize => 1_000,
            Call::MemoryInfo => 6_900,
            // About 25 GB/s over PCIe.
            Call::Copy => 5_000 + bytes / 25,
        }
    }
}
