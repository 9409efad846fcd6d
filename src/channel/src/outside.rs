//! What a process uses on a device besides the memory of its allocator.

use crate::record::StringId;

/// What a process uses on a device besides the memory that its allocator took from the driver: its CUDA context, loaded kernels, and
/// what libraries take for themselves. The driver tells the sum of all memory of a process, and not of what it consists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// How many bytes that were when they were first measured, shortly after the process began to use the device.
    pub at_start: u64,
    /// When that was: nanoseconds of `CLOCK_MONOTONIC`; 0 if it is not known.
    pub measured_at: u64,
    /// Names of libraries and features in use that take memory outside of the allocator ("NCCL (2 groups), CuPy"); empty if none is known.
    pub users: StringId,
}
