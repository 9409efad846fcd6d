//! Numbers of slots in the channel's tables, the lowest free one first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The slots of a table.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    free: BinaryHeap<Reverse<u32>>,
    next: u32,
}

impl Slots {
    /// Takes the lowest free slot.
    pub(crate) fn take(&mut self) -> u32 {
        if let Some(Reverse(slot)) = self.free.pop() {
            return slot;
        }
        let slot = self.next;
        self.next = self.next.saturating_add(1);
        slot
    }

    /// Gives a slot back.
    pub(crate) fn give(&mut self, slot: u32) {
        self.free.push(Reverse(slot));
    }
}
