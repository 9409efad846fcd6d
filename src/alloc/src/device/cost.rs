//! What driver calls cost: counted and timed on a GPU; and a model, so that a policy can be judged without one.
//!
//! Measured on one H100 80GB HBM3, driver 580.159, CUDA 13.0 (medians; they move by tens of percent between runs).
//! Virtual memory costs per chunk, not per byte.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

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
    /// `cuCtxRecordEvent`
    RecordAll,
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
        Call::RecordAll,
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
            Call::RecordAll => "cuCtxRecordEvent",
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
            Call::Record | Call::RecordAll => 320,
            // The first was not measured: it asks the same of a stream.
            Call::QueryStream | Call::Query => 290,
            Call::Synchronize => 1_000,
            Call::MemoryInfo => 6_900,
            // About 25 GB/s over PCIe.
            Call::Copy => 5_000 + bytes / 25,
        }
    }
}

/// The calls that one device's driver was asked for, and how long they took.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    counts: [AtomicU64; Call::COUNT],
    ns: AtomicU64,
}

impl Calls {
    /// Counts one that is about to be made.
    pub(crate) fn count(&self, call: Call) {
        self.counts[call as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one, and times it until what comes back is dropped.
    pub(crate) fn time(&self, call: Call) -> Timed<'_> {
        self.count(call);
        Timed {
            ns: &self.ns,
            began: Instant::now(),
        }
    }

    pub(crate) fn counted(&self, call: Call) -> u64 {
        self.counts[call as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn ns(&self) -> u64 {
        self.ns.load(Ordering::Relaxed)
    }
}

/// A call that is being made.
pub(crate) struct Timed<'a> {
    ns: &'a AtomicU64,
    began: Instant,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let took = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.ns.fetch_add(took, Ordering::Relaxed);
    }
}
