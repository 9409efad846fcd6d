//! A split or a join in one go: the event that tells of it, then the blocks, bracketed by their segment's sequence word.

use super::{Told, Writer, use_block};
use crate::codec::{self, NO_SLOT};
use crate::put::{self, WRITERS};
use crate::record::{Block, Event};
use crate::seqlock;
use crate::word::Words;

/// The blocks of a segment after a request split one of them, or after a free joined some.
#[derive(Clone, Copy, Debug)]
pub struct Structure<'a, const N: usize> {
    /// The segment's slot.
    pub segment: u32,
    /// The slots of the blocks that others took in.
    pub gone: &'a [u32],
    /// Those that changed or came, each with its slot and that of the block behind it.
    pub blocks: [(u32, &'a Block, Option<u32>); N],
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
    pub(crate) fn structure<const N: usize>(&mut self, time: u64, event: &Event, change: &Structure<'_, N>) -> Told {
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
        for (slot, block, next) in &change.blocks {
            let slot = *slot as usize;
            if slot < self.slots.count {
                self.ticket += WRITERS;
                let data = codec::block(&Block { time, ..**block }, next.unwrap_or(NO_SLOT));
                put::block(words, &self.slots, self.ticket, slot, data);
                self.used_blocks = use_block(words, &self.layout, self.used_blocks, slot);
            } else {
                stored = false;
            }
        }
        if let Some(bracket) = bracket {
            seqlock::end(bracket, ticket);
        }
        let cell = self.cells.get_mut(event.device as usize);
        let figures_due = cell.is_some_and(|cell| !change.follows || !cell.leaves(self.others));
        Told { stored, figures_due }
    }
}
