//! Splits and joins: their event, and then all the blocks that they change.
//!
//! A history takes its event by reference, from memory. Without one nothing of all this is ever stored but in the channel; so the two
//! go separate ways.

use gpumem_channel::{BlockState, EventKind, Split, Unheld};

use super::{Heap, Seen, some};
use crate::size::Class;

impl Heap {
    /// Whether what an event about a block of this class does to the figures follows from the event. What becomes an inactive split, or
    /// none any more, when blocks split and join, it does not tell.
    #[inline(always)]
    pub(super) fn follows(class: Class) -> bool {
        !matches!(class, Class::Small | Class::Large)
    }

    /// A block was handed out of the middle of a free one: `before` is what that begins with now, `rest` what was cut off behind.
    #[inline(never)]
    pub(in crate::heap) fn tell_cut_out(&mut self, before: u32, b: u32, rest: Option<u32>) {
        match rest {
            Some(rest) => self.tell_taken(b, &[before, rest]),
            None => self.tell_taken(b, &[before]),
        }
    }

    /// A block was handed out, and this is left of the free one that it was part of.
    #[inline(always)]
    pub(in crate::heap) fn tell_taken<const N: usize>(&mut self, b: u32, left: &[u32; N]) {
        if self.outlet.records() {
            self.record(EventKind::Alloc, b);
        }
        let Some(publisher) = self.outlet.publisher() else {
            return;
        };
        let block = &self.blocks[b];
        let seen = Seen::of(block, &self.streams);
        let due = match Heap::follows(block.class) {
            true => publisher.change(EventKind::Alloc, &seen),
            false => publisher.change_with(EventKind::Alloc, &seen, Split::NO, false),
        };
        let mut stored = true;
        if let Some(mut told) = publisher.structure(block.segment) {
            told.block(b, BlockState::Allocated, &seen, some(block.next));
            for free in left {
                let left = &self.blocks[*free];
                let seen = Seen::of(left, &self.streams);
                told.block(*free, BlockState::Free, &Unheld(&seen), some(left.next));
            }
            stored = told.is_whole();
        }
        if !stored {
            self.refuse(&[b]);
            self.refuse(left);
        }
        self.tell_rest(due);
    }

    /// The history's part.
    #[cold]
    #[inline(never)]
    fn record(&mut self, kind: EventKind, b: u32) {
        let event = self.event_of(kind, b);
        if let Some(recorder) = self.outlet.recorder_mut() {
            recorder.event(&event);
        }
    }

    /// A block is given back, and will join its neighbours. Whether the figures have to follow.
    #[inline(always)]
    pub(in crate::heap) fn tell_freed(&mut self, kind: EventKind, b: u32) -> bool {
        if self.outlet.records() {
            self.record(kind, b);
        }
        let Some(publisher) = self.outlet.publisher() else {
            return false;
        };
        let block = &self.blocks[b];
        if Heap::follows(block.class) {
            return publisher.change(kind, &Seen::of(block, &self.streams));
        }
        self.tell_freed_plain(kind, b)
    }

    /// The same where inactive splits are counted.
    #[inline(never)]
    fn tell_freed_plain(&mut self, kind: EventKind, b: u32) -> bool {
        let block = &self.blocks[b];
        let pool = block.class.pool();
        // It tells of one that stays what it is, of one pool.
        let follows = block.pool == pool && !self.joins_any(b);
        let split = match follows && Heap::is_split(block) {
            true => Split::of(pool),
            false => Split::NO,
        };
        let seen = Seen::of(block, &self.streams);
        let publisher = self.outlet.publisher();
        publisher.is_some_and(|publisher| publisher.change_with(kind, &seen, split, follows))
    }

    /// A block that was given back is part of `b` now, with those that are in `gone`. `due`: the figures have to follow.
    #[inline(always)]
    pub(in crate::heap) fn tell_joined(&mut self, b: u32, due: bool) {
        let Some(publisher) = self.outlet.publisher() else {
            return;
        };
        let block = &self.blocks[b];
        let (seen, next) = (Seen::of(block, &self.streams), some(block.next));
        let (stored, changed) = if self.gone.is_empty() {
            let stored = publisher.block_of(b, BlockState::Free, &Unheld(&seen), next);
            (stored, self.ledger.rose())
        } else {
            let mut stored = true;
            if let Some(mut told) = publisher.structure(block.segment) {
                self.gone.iter().for_each(|slot| told.gone(*slot));
                told.block(b, BlockState::Free, &Unheld(&seen), next);
                stored = told.is_whole();
            }
            (stored, self.ledger.more_changed())
        };
        if !stored {
            self.refuse(&[b]);
        }
        if due || changed {
            self.tell_figures();
        }
    }

    /// These blocks of a segment came free or grew without an event, and those in `gone` are part of them. Some may be part of others.
    pub(in crate::heap) fn tell_free(&mut self, segment: u32, free: impl Iterator<Item = u32> + Clone) {
        let blocks = &self.blocks;
        let free = free.filter(|b| blocks[*b].state == BlockState::Free);
        let Some(publisher) = self.outlet.publisher() else {
            return self.gone.clear();
        };
        let mut stored = true;
        if let Some(mut told) = publisher.structure(segment) {
            self.gone.iter().for_each(|slot| told.gone(*slot));
            for b in free.clone() {
                let block = &blocks[b];
                let seen = Seen::of(block, &self.streams);
                told.block(b, BlockState::Free, &Unheld(&seen), some(block.next));
            }
            stored = told.is_whole();
        }
        if !stored {
            let free: Vec<u32> = free.collect();
            self.refuse(&free);
        }
        self.gone.clear();
    }

    /// Blocks of a segment, none of them lent, as they are now.
    pub(in crate::heap) fn tell_blocks(&mut self, segment: u32, shown: impl Iterator<Item = u32> + Clone) {
        let Some(publisher) = self.outlet.publisher() else {
            return;
        };
        let mut stored = true;
        if let Some(mut told) = publisher.structure(segment) {
            for b in shown.clone() {
                let block = &self.blocks[b];
                let seen = Seen::of(block, &self.streams);
                told.block(b, block.state, &seen, some(block.next));
            }
            stored = told.is_whole();
        }
        if !stored {
            let shown: Vec<u32> = shown.collect();
            self.refuse(&shown);
        }
    }

    /// The channel has no slots for some of these blocks, or of those in `gone`.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, shown: &[u32]) {
        self.gone.iter().for_each(|slot| self.outlet.refuse_if(*slot, 0));
        for slot in shown {
            self.outlet.refuse_if(*slot, self.blocks[*slot].size);
        }
    }
}
