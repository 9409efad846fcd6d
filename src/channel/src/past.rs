//! What a publisher that samples another allocator found before.

/// The figures of a device at an earlier moment. A channel keeps the newest [`PAST`](crate::PAST) of them, so that a reader that comes late,
/// or reads a black box, knows what was before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastFigures {
    /// When they were sampled: nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Index into the channel's devices.
    pub device: u8,
    /// Bytes held by the program.
    pub allocated: u64,
    /// Bytes taken from the driver.
    pub reserved: u64,
}
