//! What `bench claims` needs of a GPU. [`crate::gpu`] has the CUDA one; tests have one whose times are given.
//!
//! Every call waits for its work and takes less than half a second, so that the caller can stop between two calls. Times are
//! nanoseconds. Each call frees what it allocates, or keeps it until [`ClaimRig::tidy`].

use super::{Card, Rig, RigError, Route};

/// A GPU on which claims are checked.
pub(crate) trait ClaimRig: Allocations + Copies + Accesses + Managed {
    /// The device's attributes.
    fn card(&self) -> &Card;

    /// Bytes of device memory that all calls together may use at a time.
    fn budget(&self) -> u64;

    /// Returns the rig of `bench hierarchy` on the same device, which has most of the budget until [`ClaimRig::tidy`].
    fn hierarchy(&mut self) -> Result<&mut dyn Rig, RigError>;

    /// Reads the same memory by the same kernel each time: how long it takes says whether others keep the card busy.
    fn calibrate(&mut self) -> Result<u64, RigError>;

    /// Frees the memory that calls kept.
    fn tidy(&mut self);
}

/// Allocations, by the driver or from a cache.
pub(crate) trait Allocations {
    /// Allocates and frees `bytes` by `cuMemAlloc` and `cuMemFree` while the device is idle.
    fn malloc(&mut self, bytes: u64) -> Result<Malloc, RigError>;

    /// Does so `rounds` times in each of `threads` threads at the same time. Returns the time until all have ended.
    fn malloc_threads(&mut self, threads: u32, rounds: u32, bytes: u64) -> Result<u64, RigError>;

    /// Frees `bytes` by `cuMemFree` while a kernel runs that takes `kernel_ns` and does not use them.
    fn free_behind(&mut self, bytes: u64, kernel_ns: u64) -> Result<FreeBehind, RigError>;

    /// Runs a program on one stream whose memory comes from `source`. Returns the time until its last kernel has ended.
    fn program(&mut self, source: Source, ops: &[Op]) -> Result<u64, RigError>;
}

/// A pair of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malloc {
    /// `cuMemAlloc`.
    pub(crate) alloc_ns: u64,
    /// `cuMemFree`.
    pub(crate) free_ns: u64,
}

/// A free while a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeBehind {
    /// `cuMemFree`.
    pub(crate) free_ns: u64,
    /// From the launch of the kernel to its end.
    pub(crate) kernel_ns: u64,
}

/// Where a program's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `cuMemAlloc` and `cuMemFree`.
    Driver,
    /// `cuMemAllocAsync` and `cuMemFreeAsync`, with a pool that keeps its memory.
    Pool,
    /// gpumem-alloc.
    Cache,
}

/// A step of a program. Blocks are named by slots, which count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Allocates a block. Its slot is free.
    Alloc {
        /// Its slot.
        slot: usize,
        /// Its size.
        bytes: u64,
    },
    /// Queues a kernel that writes to a block.
    Kernel {
        /// The block's slot.
        slot: usize,
        /// How long the kernel takes.
        ns: u64,
    },
    /// Frees a block.
    Free {
        /// Its slot.
        slot: usize,
    },
}

/// Copies between host and device.
pub(crate) trait Copies {
    /// Copies by an asynchronous call (`cuMemcpyHtoDAsync` and so on) on a stream of its own, and compares what arrived.
    fn copy_async(&mut self, route: Route, bytes: u64) -> Result<Copied, RigError>;

    /// Computes on `bytes` of device memory for so many rounds. Returns the kernel's time.
    fn compute(&mut self, bytes: u64, rounds: u32) -> Result<u64, RigError>;

    /// Copies chunks to the device, computes on them, and copies them back. Returns the time until the last one is back.
    fn pipeline(&mut self, pipeline: Pipeline) -> Result<u64, RigError>;
}

/// Chunks that pass through the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pipeline {
    /// Streams, which take the chunks in turn.
    pub(crate) streams: usize,
    /// Chunks (a count).
    pub(crate) chunks: usize,
    /// Bytes of a chunk. All of them together are at most 64 MiB.
    pub(crate) chunk_bytes: u64,
    /// Rounds of the kernel that computes on a chunk.
    pub(crate) rounds: u32,
    /// Whether the host's memory is pinned.
    pub(crate) pinned: bool,
}

/// An asynchronous copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    /// From the call to its return.
    pub(crate) returned_ns: u64,
    /// From the call to the end of the copy.
    pub(crate) done_ns: u64,
}

/// Kernels that access device memory in different orders.
pub(crate) trait Accesses {
    /// Reads `2^log_words` words of 4 bytes, each once. Neighbouring threads read words that are `2^log_stride` words apart.
    fn strided(&mut self, log_words: u32, log_stride: u32) -> Result<u64, RigError>;

    /// Adds to the first `used` of the [`FIELDS`] fields of `records` records. Returns the kernel's time.
    fn fields(&mut self, layout: Layout, records: u32, used: u32) -> Result<u64, RigError>;
}

/// Fields of a record, 4 bytes each.
pub(crate) const FIELDS: u32 = 8;

/// Where the fields of records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A record in a row.
    ArrayOfStructures,
    /// An array for each field.
    StructureOfArrays,
}

/// Managed memory, which the host has written before each call, so that all its pages are on the host.
pub(crate) trait Managed {
    /// Brings `bytes` of data to the device, and has a kernel read them.
    fn arrive(&mut self, arrival: Arrival, bytes: u64) -> Result<Arrived, RigError>;

    /// Touches one word in each 2 MiB of `bytes` of managed memory, one after the other, on the device or on the host, while all pages
    /// are on the other side. Returns the time of all touches.
    fn touch(&mut self, by: Toucher, bytes: u64) -> Result<u64, RigError>;
}

/// How data comes to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Managed memory; the pages move as the kernel touches them.
    OnDemand,
    /// Managed memory that is prefetched.
    Prefetched,
    /// Device memory, copied from pinned memory.
    CopiedPinned,
    /// Device memory, copied from pageable memory.
    CopiedPageable,
}

/// Data that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// How long prefetching or copying took.
    pub(crate) move_ns: u64,
    /// How long the kernel took.
    pub(crate) kernel_ns: u64,
}

/// Who touches pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toucher {
    /// One thread of a kernel; the pages are on the host.
    Device,
    /// One thread of the host; the pages are on the device.
    Host,
}
