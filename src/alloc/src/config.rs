//! What an allocator can be told.

use crate::publish::Publish;
use crate::size::MAX_CHUNK;

/// How memory for large blocks is taken from the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentMode {
    /// One `cuMemAlloc` per segment: a segment stays what it is until it is wholly free.
    #[default]
    Plain,
    /// Reserved address ranges into which physical chunks are mapped: they grow in place, free chunks can be given back
    /// from anywhere, and holes can be joined ([`Allocator::join_holes`](crate::Allocator::join_holes)). Requests from
    /// 2 MiB are rounded to 2 MiB; smaller ones live in plain segments.
    Virtual,
    /// One address range for everything, made of physical chunks; a request that no free block fits is stitched from free pieces
    /// that lie apart, mapped side by side a second time, before any new memory is taken, and then no more than is missing.
    Stitched,
}

/// What an allocator can be told. `Config::default()` is a good start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Most bytes this allocator may take from the driver. `None`: as much as the device has.
    pub budget: Option<u64>,
    /// Plain or virtual segments.
    pub segments: SegmentMode,
    /// Largest physical chunk of virtual segments in bytes: a power of two, raised to the device's granularity.
    pub max_chunk: u64,
    /// Whether a request that does not fit gives the cache back to the driver and tries again before it fails.
    pub release_on_oom: bool,
    /// Whether and how the allocator publishes its state.
    pub publish: Publish,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            budget: None,
            segments: SegmentMode::Plain,
            max_chunk: MAX_CHUNK,
            release_on_oom: true,
            publish: Publish::default(),
        }
    }
}
