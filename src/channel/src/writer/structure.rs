//! A split or a join in one go: the event that tells of it, then the blocks, bracketed by their segment's sequence word.

use super::{Told, Writer, use_block};
use crate::codec::{self, NO_SLOT};
use crate::layout::Layout;
use crate::put::{self, Slots, WRITERS};
use crate::record::{Block, Event};
use crate::seqlock;
use crate::word::{Word, Words};

/// A block with its slot and that of the block behind it.
pub type Placed = (u32, Block, Option<u32>);

/// The blocks of a segment after a request split one of them, or after a free joined some.
#[derive(Clone, Copy, Debug)]
pub struct Structure<'a> {
    /// The segment's slot.
    pub segment: u32,
    /// The slots of the blocks that others took in.
    pub gone: &'a [u32],
    /// The one that changed.
    pub block: Placed,
    /// The one that came.
    pub rest: Option<Placed>,
    /// Whether what the event does to the device's figures follows from it, as it does not where inactive splits are counted.
    pub follows: bool,
}

impl<M: Words> Writer<M> {
    /// Whether the table of blocks has a slot.
    pub(crate) fn has_slot(&self, slot: u32) -> bool {
        (slot as usize) < self.slots.count
    }

    /// [`Writer::event`], [`Writer::segment_begin`], [`Writer::clear_block`], [`Writer::block`] and [`Writer::segment_close`] in one go. `time` is
    /// that of the event and the blocks. What is `stored` is true if the table has slots for all of the blocks.
    #[inline(always)]
    pub(crate) fn structure(&mut self, time: u64, event: &Event, change: &Structure<'_>) -> Told {
        let words = self.memory.words();
        if words.is_empty() {
            return Told {
                stored: true,
                figures_due: false,
            };
        }
        let event = Event { time, ..*event };
        let data = codec::event(&event, change.follows, self.order);
        self.events += put::event(words, &self.ring, self.events, data);
        self.others += u64::from(!change.follows);
        // A segment that somebody has open already stays so; one that was never shown has no list to be read.
        let segment = change.segment as usize;
        let shown = segment < self.used_segments && !self.open_segments.iter().any(|open| open.0 == change.segment);
        let bracket = if shown {
            words.get(self.layout.segments.record(segment))
        } else {
            None
        };
        self.ticket += WRITERS;
        let ticket = self.ticket;
        if let Some(bracket) = bracket {
            seqlock::begin(bracket, ticket);
        }
        let mut stored = true;
        for slot in change.gone {
            self.ticket += WRITERS;
            stored &= put::empty_block(words, &self.slots, self.ticket, *slot as usize);
        }
        let mut place = Place {
            slots: self.slots,
            ticket: self.ticket,
            used: self.used_blocks,
            time,
        };
        stored &= place.put(words, &self.layout, change.block);
        // No loop: what is in no array is in no memory.
        if let Some(rest) = change.rest {
            stored &= place.put(words, &self.layout, rest);
        }
        (self.ticket, self.used_blocks) = (place.ticket, place.used);
        if let Some(bracket) = bracket {
            seqlock::end(bracket, ticket);
        }
        let cell = self.cells.get_mut(event.device as usize);
        let figures_due = cell.is_some_and(|cell| !change.follows || !cell.leaves(self.others));
        Told { stored, figures_due }
    }
}

/// What it takes to store a block.
struct Place {
    slots: Slots,
    ticket: u64,
    used: usize,
    time: u64,
}

impl Place {
    /// Stores a block. False if the table has no such slot.
    #[inline(always)]
    fn put<W: Word>(&mut self, words: &[W], layout: &Layout, (slot, block, next): Placed) -> bool {
        let slot = slot as usize;
        if slot >= self.slots.count {
            return false;
        }
        self.ticket += WRITERS;
        let block = Block {
            time: self.time,
            ..block
        };
        let data = codec::block(&block, next.unwrap_or(NO_SLOT));
        put::block(words, &self.slots, self.ticket, slot, data);
        self.used = use_block(words, layout, self.used, slot);
        true
    }
}
