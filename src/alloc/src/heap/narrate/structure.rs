//! Splits and joins: their event and all the blocks that they change, told in one go.
//!
//! A history takes its event by reference, from memory. Without one nothing of all this is ever stored but in the channel; so the two
//! go separate ways.

use gpumem_channel::{Block, BlockState, Event, EventKind, Operation, Structure};

use super::{DEVICE, Heap};
use crate::size::Class;

/// A block that was given back, as it was before it joined its neighbours.
#[derive(Clone, Copy)]
pub(in crate::heap) struct Freed {
    kind: EventKind,
    block: Block,
}

impl Freed {
    #[inline(always)]
    fn event(&self) -> Event {
        let Block {
            addr,
            size,
            requested,
            stream,
            pool,
            segment,
            tag,
            ..
        } = self.block;
        Event {
            kind: self.kind,
            device: DEVICE,
            pool,
            addr,
            size,
            requested,
            stream,
            tag,
            segment,
            ..Event::default()
        }
    }
}

impl Heap {
    /// Whether what an event about a block of this class does to the figures follows from the event. What becomes an inactive split, or
    /// none any more, when blocks split and join, it does not tell.
    #[inline(always)]
    pub(super) fn follows(class: Class) -> bool {
        !matches!(class, Class::Small | Class::Large)
    }

    /// A block was handed out, and `rest` was cut off it.
    #[inline(always)]
    pub(in crate::heap) fn tell_cut(&mut self, b: u32, rest: u32) {
        if self.outlet.only_publishes() {
            self.publish_cut(b, rest);
        } else if self.outlet.is_on() {
            self.record_cut(b, rest);
        }
    }

    #[cold]
    #[inline(never)]
    fn record_cut(&mut self, b: u32, rest: u32) {
        let event = self.event_of(EventKind::Alloc, b);
        if let Some(recorder) = self.outlet.recorder_mut() {
            recorder.event(&event);
        }
        self.publish_cut(b, rest);
    }

    #[inline(always)]
    fn publish_cut(&mut self, b: u32, rest: u32) {
        let ((block, next), (left, behind)) = (self.seen(b), self.seen(rest));
        let event = Freed {
            kind: EventKind::Alloc,
            block,
        }
        .event();
        // Constants here save a table there.
        let block = Block {
            state: BlockState::Allocated,
            ..block
        };
        let left = Block {
            requested: 0,
            state: BlockState::Free,
            tag: gpumem_channel::StringId(0),
            segment: block.segment,
            ..left
        };
        let due = self.outlet.structure(
            &event,
            &Structure {
                segment: block.segment,
                gone: &[],
                block: (b, block, next),
                rest: Some((rest, left, behind)),
                follows: Heap::follows(self.blocks[b].class),
            },
        );
        self.tell_rest(due);
    }

    /// What is to be told of a block that is given back, before it joins its neighbours.
    #[inline(always)]
    pub(in crate::heap) fn freed(&self, kind: EventKind, b: u32) -> Freed {
        Freed {
            kind,
            block: self.seen(b).0,
        }
    }

    /// A block was given back, and is part of `b` now, with those that are `gone`.
    #[inline(always)]
    pub(in crate::heap) fn tell_joined(&mut self, freed: &Freed, b: u32, gone: &[u32]) {
        if self.outlet.only_publishes() {
            self.publish_joined(freed, b, gone);
        } else {
            self.record_joined(*freed, b, gone);
        }
    }

    #[cold]
    #[inline(never)]
    fn record_joined(&mut self, freed: Freed, b: u32, gone: &[u32]) {
        if let Some(recorder) = self.outlet.recorder_mut() {
            recorder.event(&freed.event());
        }
        self.publish_joined(&freed, b, gone);
    }

    #[inline(always)]
    fn publish_joined(&mut self, freed: &Freed, b: u32, gone: &[u32]) {
        let (block, next) = self.seen(b);
        let class = self.blocks[b].class;
        // What another pool counted than its segment's is that one's again: an operation tells of one pool only.
        let due = if gone.is_empty() && freed.block.pool == class.pool() {
            // It joined nothing: no more than its state changed.
            let block = Block {
                state: BlockState::Free,
                ..freed.block
            };
            let operation = Operation {
                kind: freed.kind,
                slot: b,
                block: &block,
                next,
                split: self.blocks[b].split_counted.then_some(class.pool()),
            };
            self.outlet.operation(&operation) | self.ledger.rose()
        } else {
            let block = Block {
                requested: 0,
                state: BlockState::Free,
                tag: gpumem_channel::StringId(0),
                ..block
            };
            let due = self.outlet.structure(
                &freed.event(),
                &Structure {
                    segment: block.segment,
                    gone,
                    block: (b, block, next),
                    rest: None,
                    follows: Heap::follows(class),
                },
            );
            due | self.ledger.more_changed()
        };
        if due {
            self.tell_figures();
        }
    }
}
