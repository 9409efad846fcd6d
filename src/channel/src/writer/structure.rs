//! Changes of structure: stores to a segment and its blocks, bracketed by the segment's sequence word.

use std::sync::atomic::AtomicU64;

use super::{Writer, use_block};
use crate::codec::{self, NO_SLOT};
use crate::facts::Facts;
use crate::format::live;
use crate::layout::Layout;
use crate::put::{self, LINE, Slots, WRITERS};
use crate::record::{BlockState, Segment};
use crate::seqlock;
use crate::word::{Word, Words};

/// A change of a segment's structure in progress. Readers do not accept the segment's blocks until this is dropped.
///
/// Each block is stored at once, so that the caller can look it up just before and need not keep a copy.
#[derive(Debug)]
pub struct Structure<'a, W: Word = AtomicU64> {
    words: &'a [W],
    layout: &'a Layout,
    slots: &'a Slots,
    /// The segment's record, if its sequence word brackets this change, and the ticket of the change.
    bracket: Option<(&'a [W; LINE], u64)>,
    ticket: u64,
    /// The writer's ticket, updated at the end.
    writer_ticket: &'a mut u64,
    used: &'a mut usize,
    time: u64,
    /// Whether the table had slots for all blocks so far.
    whole: bool,
}

impl<W: Word> Structure<'_, W> {
    /// Publishes a new or changed block. `next` is the slot of the next block in the segment.
    #[inline(always)]
    pub fn block(&mut self, slot: u32, state: BlockState, block: &impl Facts, next: Option<u32>) {
        self.ticket += WRITERS;
        let slot = slot as usize;
        let record = (slot, self.time, state, next);
        if !put::block::<false, _>(self.words, self.slots, self.ticket, record, block) {
            self.whole = false;
        } else if slot >= *self.used {
            *self.used = slot + 1;
            use_block(self.words, self.layout, slot);
        }
    }

    /// Removes a block that was merged into another.
    #[inline(always)]
    pub fn gone(&mut self, slot: u32) {
        self.ticket += WRITERS;
        if !put::empty_block(self.words, self.slots, self.ticket, slot as usize) {
            self.whole = false;
        }
    }

    /// Whether the table has slots for all of them.
    #[inline(always)]
    pub fn is_whole(&self) -> bool {
        self.whole
    }
}

impl<W: Word> Drop for Structure<'_, W> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.writer_ticket = self.ticket;
        if let Some((record, ticket)) = self.bracket {
            seqlock::end(record, ticket);
        }
    }
}

impl<M: Words> Writer<M> {
    #[inline(always)]
    fn is_open(&self, segment: u32) -> bool {
        !self.open_segments.is_empty() && self.open_segments.iter().any(|open| open.0 == segment)
    }

    /// Opens a segment for a change of structure: until [`Writer::segment_end`] readers do not accept its blocks.
    #[inline]
    pub(crate) fn segment_begin(&mut self, slot: u32) {
        let index = slot as usize;
        if index >= self.layout.segments.count || self.is_open(slot) {
            return;
        }
        self.ticket += WRITERS;
        if index >= self.used_segments {
            self.used_segments = index + 1;
            self.publish_live(live::SEGMENTS, self.used_segments as u64);
        }
        seqlock::begin(&self.memory.words()[self.layout.segments.record(index)], self.ticket);
        self.open_segments.push((slot, self.ticket));
    }

    /// Ends the change with the segment's new record and the slot of its first block; `None` empties the slot.
    #[inline]
    pub(crate) fn segment_end(&mut self, slot: u32, segment: Option<(&Segment, Option<u32>)>) {
        let Some(at) = self.open_segments.iter().position(|open| open.0 == slot) else {
            return;
        };
        let (_, ticket) = self.open_segments.swap_remove(at);
        // A change of a segment also changes figures.
        self.stop_deferring();
        let record = &self.memory.words()[self.layout.segments.record(slot as usize)];
        let data = segment.map_or([0; codec::SEGMENT_DATA], |(s, first)| {
            codec::encode_segment(s, first.unwrap_or(NO_SLOT))
        });
        for (word, value) in record[1..].iter().zip(data) {
            word.put(value);
        }
        seqlock::end(record, ticket);
    }

    /// Ends the change and keeps the record.
    #[inline]
    pub(crate) fn segment_close(&mut self, slot: u32) {
        if let Some(at) = self.open_segments.iter().position(|open| open.0 == slot) {
            let (_, ticket) = self.open_segments.swap_remove(at);
            seqlock::end(&self.memory.words()[self.layout.segments.record(slot as usize)], ticket);
        }
    }

    /// Whether the block table has this slot.
    pub(crate) fn has_slot(&self, slot: u32) -> bool {
        (slot as usize) < self.slots.count
    }

    /// Does [`Writer::segment_begin`] for blocks of this `time`, and [`Writer::segment_close`] when the returned value
    /// is dropped. Returns `None` in a forked child.
    #[inline(always)]
    pub(crate) fn structure(&mut self, segment: u32, time: u64) -> Option<Structure<'_, M::W>> {
        let words = self.memory.here()?;
        // A segment that is already open stays open. One that was never published has no list to be read.
        let bracket = if (segment as usize) < self.used_segments && !self.is_open(segment) {
            put::bracket(words, &self.slots, segment as usize)
        } else {
            None
        };
        let ticket = self.ticket + WRITERS;
        Some(Structure {
            words,
            layout: &self.layout,
            slots: &self.slots,
            bracket: bracket.map(|record| {
                seqlock::begin(record, ticket);
                (record, ticket)
            }),
            ticket,
            writer_ticket: &mut self.ticket,
            used: &mut self.used_blocks,
            time,
            whole: true,
        })
    }
}
