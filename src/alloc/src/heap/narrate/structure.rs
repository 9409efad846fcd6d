//! Splits and joins: their event and all the blocks that they change, told in one go.

use gpumem_channel::{BlockState, Event, EventKind, Operation, Structure};

use super::Heap;
use crate::size::Class;

impl Heap {
    /// Whether what an event about a block of this class does to the figures follows from the event. What becomes an inactive split, or
    /// none any more, when blocks split and join, it does not tell.
    #[inline(always)]
    pub(super) fn follows(class: Class) -> bool {
        !matches!(class, Class::Small | Class::Large)
    }

    /// A block was handed out, and `rest` was cut off it.
    #[inline]
    pub(in crate::heap) fn tell_cut(&mut self, b: u32, rest: u32) {
        if !self.outlet.is_on() {
            return;
        }
        let event = self.event_of(EventKind::Alloc, b);
        let ((block, next), (left, behind)) = (self.seen(b), self.seen(rest));
        let due = self.outlet.structure(
            &event,
            &Structure {
                segment: event.segment,
                gone: &[],
                blocks: [(b, &block, next), (rest, &left, behind)],
                follows: Heap::follows(self.blocks[b].class),
            },
        );
        self.tell_rest(due);
    }

    /// A block is free, as `event` says, and part of `b` now, with those that are `gone`.
    #[inline]
    pub(in crate::heap) fn tell_joined(&mut self, event: &Event, b: u32, gone: &[u32]) {
        let (mut block, next) = self.seen(b);
        let class = self.blocks[b].class;
        let due = if gone.is_empty() && self.outlet.only_publishes() {
            // It joined nothing.
            (block.requested, block.pool, block.tag) = (event.requested, event.pool, event.tag);
            let split = self.blocks[b].split_counted.then_some(class.pool());
            let operation = Operation {
                kind: event.kind,
                slot: b,
                block: &gpumem_channel::Block {
                    state: BlockState::Free,
                    ..block
                },
                next,
                split,
            };
            self.outlet.operation(&operation) || self.ledger.rose()
        } else {
            let due = self.outlet.structure(
                event,
                &Structure {
                    segment: event.segment,
                    gone,
                    blocks: [(b, &block, next)],
                    follows: Heap::follows(class),
                },
            );
            due || self.ledger.more_changed()
        };
        if due {
            self.tell_figures();
        }
    }
}
