//! What `bench claims` needs of a GPU. [`crate::gpu`] has the CUDA one; tests have one whose times are given.
//!
//! Every call waits for its work and takes less than half a second, so that the caller can stop between two calls. Times are
//! nanoseconds. Each call frees what it allocates, or keeps it until [`ClaimRig::tidy`].

use super::{Card, RigError, Route};

/// A GPU on which claims are checked.
pub(crate) trait ClaimRig: Allocations + Copies + Accesses {
    /// The device's attributes.
    fn card(&self) -> &Card;

    /// Bytes of device memory that all calls together may use at a time.
    fn budget(&self) -> u64;

    /// Reads the same memory by the same kernel each time: how long it takes says whether others keep the card busy.
    fn calibrate(&mut self) -> Result<u64, RigError>;

    /// Frees the memory that calls kept.
    fn tidy(&mut self);
}

/// Allocations by the driver.
pub(crate) trait Allocations {
    /// Allocates and frees `bytes` by `cuMemAlloc` and `cuMemFree` while the device is idle.
    fn malloc(&mut self, bytes: u64) -> Result<Malloc, RigError>;
}

/// A pair of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malloc {
    /// `cuMemAlloc`.
    pub(crate) alloc_ns: u64,
    /// `cuMemFree`.
    pub(crate) free_ns: u64,
}

/// Copies between host and device.
pub(crate) trait Copies {
    /// Copies by an asynchronous call (`cuMemcpyHtoDAsync` and so on) on a stream of its own, and compares what arrived.
    fn copy_async(&mut self, route: Route, bytes: u64) -> Result<Copied, RigError>;
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
}
