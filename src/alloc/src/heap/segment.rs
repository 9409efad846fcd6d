//! Segments: address ranges taken from the driver, and the physical chunks behind virtual ones.

use std::collections::BTreeMap;

use gpumem_channel::{SegmentKind, StringId};

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
#[derive(Debug, Default)]
pub(crate) struct Segments {
    slots: Vec<Option<Segment>>,
    /// No slot before this is vacant: to look at all of them for each new one would take longer than the driver does where there are very many.
    vacant: usize,
    /// How often all were looked at.
    #[cfg(test)]
    pub(crate) looks: std::cell::Cell<usize>,
}

impl Segments {
    pub(crate) fn insert(&mut self, segment: Segment) -> u32 {
        let from = self.vacant.min(self.slots.len());
        let vacant = self.slots[from..].iter().position(Option::is_none);
        let slot = vacant.map_or(self.slots.len(), |behind| from + behind);
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some(segment),
            None => self.slots.push(Some(segment)),
        }
        self.vacant = slot + 1;
        slot as u32
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Segment> {
        let gone = self.slots.get_mut(slot as usize)?.take()?;
        self.vacant = self.vacant.min(slot as usize);
        Some(gone)
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&Segment> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Segment> {
        self.slots.get_mut(slot as usize).and_then(Option::as_mut)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        self.slots.iter_mut().flatten()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        #[cfg(test)]
        self.looks.update(|looks| looks + 1);
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(i, s)| s.as_ref().map(|s| (i as u32, s)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn segment(addr: u64) -> Segment {
        Segment {
            addr,
            size: 0,
            reservation: 0,
            mapped: 0,
            class: Class::Large,
            kind: SegmentKind::Plain,
            arena: 0,
            stream: 0,
            taken_for: Stream::DEFAULT,
            tag: StringId(0),
            time: 0,
            used_at: 0,
            first: u32::MAX,
            last: u32::MAX,
            chunks: BTreeMap::new(),
            holes: BTreeMap::new(),
            cover: Vec::new(),
            borders: Vec::new(),
            stale: Vec::new(),
        }
    }

    #[test]
    fn a_new_one_has_the_first_vacant_slot() {
        let mut segments = Segments::default();
        let insert = |segments: &mut Segments, slots: &[u32]| {
            for slot in slots {
                assert_eq!(segments.insert(segment(0)), *slot);
            }
        };
        insert(&mut segments, &[0, 1, 2, 3, 4]);
        for slot in [3, 1] {
            assert!(segments.remove(slot).is_some() && segments.remove(slot).is_none());
        }
        insert(&mut segments, &[1, 3, 5]);
        assert!(segments.remove(5).is_some() && segments.remove(9).is_none());
        insert(&mut segments, &[5, 6]);
    }

    #[test]
    fn the_next_is_looked_for_behind_those_there_are() {
        let mut segments = Segments::default();
        let behind = |segments: &Segments| segments.slots.len() - segments.vacant;
        for addr in 0..1000 {
            segments.insert(segment(addr));
            assert_eq!(behind(&segments), 0);
        }
        segments.remove(300);
        segments.insert(segment(0));
        // Once more to the end.
        assert_eq!(behind(&segments), 699);
        segments.insert(segment(0));
        assert_eq!(behind(&segments), 0);
    }
}
