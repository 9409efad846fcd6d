//! An event as it is kept.

use gpumem_channel::StringId;

use crate::stack::Stack;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// The program was given a block.
    Alloc,
    /// It gave one back that nothing uses any more.
    Free,
    /// It gave one back that queued work still uses.
    FreeRequested,
    /// Queued work has done with such a block.
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    SegmentMap,
    SegmentUnmap,
    /// The cache was released.
    Release,
    /// A request was served after making room.
    Retry,
    OutOfMemory,
    /// A mark of the program's; `tag` is the number of its name.
    Mark,
    /// A step ended; `size` is its number.
    Step,
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) time: u64,
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) stream: u64,
    pub(crate) deed: Deed,
    pub(crate) tag: StringId,
    pub(crate) stack: Stack,
    /// The kernel's number of the thread.
    pub(crate) thread: u32,
    /// Of a stitched block: the number of the list of its pieces, which it refers to; else 0.
    pub(crate) pieces: u32,
}
