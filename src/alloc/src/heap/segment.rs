//! Segments: address ranges taken from the driver, and the physical chunks behind virtual ones.

use std::collections::BTreeMap;

use gpumem_channel::{SegmentKind, StringId};

use super::ages::Ages;
use super::slots::Slots;
use crate::device::Handle;
use crate::size::Class;
use crate::stream::Stream;

/// Physical memory mapped into a virtual segment. Chunks are moved and given back whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) handle: Handle,
    pub(crate) size: u64,
}

/// An address range with the blocks that tile it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) addr: u64,
    /// Bytes tiled by blocks. A virtual segment grows at this end into its reservation.
    pub(crate) size: u64,
    /// Bytes of address space behind `addr`: `size` for plain segments.
    pub(crate) reservation: u64,
    /// Bytes of physical memory.
    pub(crate) mapped: u64,
    pub(crate) class: Class,
    pub(crate) kind: SegmentKind,
    pub(crate) arena: u16,
    /// Index of the stream it was taken for, to be told: whose its free blocks are they know themselves. Nobody's once that has ended and was
    /// forgotten.
    pub(crate) stream: u16,
    /// The name of that stream, whatever became of it: of a virtual segment events and snapshots go on telling this one, as PyTorch's viewer
    /// joins its parts only while they are of the same.
    pub(crate) taken_for: Stream,
    pub(crate) tag: StringId,
    /// When it was taken, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) time: u64,
    /// The heap's free counter when a block of it was freed last, as far as the block does not tell it any more.
    pub(crate) used_at: u64,
    /// First and last block; [`super::NIL`] when there is none.
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// Chunks by address.
    pub(crate) chunks: BTreeMap<u64, Chunk>,
    /// Blocks without physical memory, by address.
    pub(crate) holes: BTreeMap<u64, u32>,
    /// For each granule of the home segment the first block that begins in it, or [`super::NIL`].
    pub(crate) cover: Vec<u32>,
    /// Of a virtual one: since when its granules are free.
    pub(crate) ages: Ages,
    /// For each granule of the home segment a bit: a chunk may begin or end where it begins. Without it none does.
    pub(crate) borders: Vec<u64>,
    /// Ranges that could not be unmapped, after their chunk had moved or when mapping more failed: never mapped again, tried again at every
    /// release.
    pub(crate) stale: Vec<(u64, u64)>,
}

impl Segment {
    pub(crate) fn end(&self) -> u64 {
        self.addr + self.size
    }

    /// Chunks that lie wholly in `addr..end`, by address.
    pub(crate) fn chunks_within(&self, addr: u64, end: u64) -> impl DoubleEndedIterator<Item = (u64, Chunk)> {
        self.chunks
            .range(addr..end)
            .map(|(a, c)| (*a, *c))
            .filter(move |(a, c)| a + c.size <= end)
    }

    /// Bytes of them.
    pub(crate) fn bytes_within(&self, addr: u64, end: u64) -> u64 {
        self.chunks_within(addr, end).map(|(_, chunk)| chunk.size).sum()
    }

    pub(crate) fn is_stale(&self, addr: u64, bytes: u64) -> bool {
        self.stale
            .iter()
            .any(|(start, len)| *start < addr + bytes && addr < start + len)
    }
}

/// All segments of a device; a segment's index is its slot in the channel.
pub(crate) type Segments = Slots<Segment>;
