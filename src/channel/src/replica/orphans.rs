//! Blocks whose segment has no slot in the segment table. They are in no list, but they are counted.

use std::collections::HashMap;

use crate::record::Block;

/// The orphaned blocks that have a slot, by slot, with their bytes.
#[derive(Default)]
pub(super) struct Orphans {
    bytes: HashMap<u32, u64>,
    sum: u64,
}

impl Orphans {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Records the content of a slot: an orphaned block, or none.
    #[cold]
    pub(super) fn set(&mut self, slot: usize, orphan: Option<&Block>) {
        let slot = slot as u32;
        let before = match orphan {
            Some(block) => self.bytes.insert(slot, block.size),
            None => self.bytes.remove(&slot),
        };
        let now = orphan.map_or(0, |block| block.size);
        // Sizes are the publisher's claim, so their sum may overflow.
        self.sum = self.sum.wrapping_sub(before.unwrap_or(0)).wrapping_add(now);
    }

    /// Returns their number and bytes.
    pub(super) fn counted(&self) -> (u64, u64) {
        (self.bytes.len() as u64, self.sum)
    }
}
