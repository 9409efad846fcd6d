//! Managed memory: one address range that CPU and GPU access, and whose pages move to whoever does.

use std::fmt;

use super::Result;
use crate::stream::Stream;

/// Where pages of managed memory can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In the host's memory.
    Cpu,
    /// In the memory of the buffer's device.
    Device,
}

/// What a program can tell the driver about managed memory (`cuMemAdvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    ReadMostly(bool),
    Prefer(Option<Location>),
    AccessedBy(Location, bool),
}

/// An allocation of managed memory, which ends when this is dropped.
///
/// Callers keep ranges within the allocation.
pub(crate) trait ManagedMemory: Send + Sync + fmt::Debug {
    fn addr(&self) -> u64;
    /// Queues moving a part on a stream.
    fn prefetch(&self, offset: u64, bytes: u64, to: Location, stream: Stream) -> Result<()>;
    /// Gives advice on all of it.
    fn advise(&self, advice: Advice) -> Result<()>;
    /// Queues saying that the contents of a part are not needed any more.
    fn discard(&mut self, offset: u64, bytes: u64, stream: Stream) -> Result<()>;
    /// Waits for the device, and returns all bytes. They begin at a multiple of [`ALIGNMENT`].
    fn host(&mut self) -> Result<&mut [u8]>;
}

/// Alignment of managed memory in bytes.
pub(crate) const ALIGNMENT: usize = 256;
