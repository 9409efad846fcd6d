//! Blocks of segments that the table of segments has no room for: they are in no list, but that they are there is known.

use std::collections::HashMap;

use crate::record::Block;

/// Those of them that have a slot: its number, and their bytes.
#[derive(Default)]
pub(super) struct Strays {
    bytes: HashMap<u32, u64>,
    sum: u64,
}

impl Strays {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What is in a slot now is none of them, or this block is one.
    #[cold]
    pub(super) fn set(&mut self, slot: usize, stray: Option<&Block>) {
        let slot = slot as u32;
        let before = match stray {
            Some(block) => self.bytes.insert(slot, block.size),
            None => self.bytes.remove(&slot),
        };
        let now = stray.map_or(0, |block| block.size);
        // Sizes are the publisher's claim, and their sum need not fit.
        self.sum = self.sum.wrapping_sub(before.unwrap_or(0)).wrapping_add(now);
    }

    /// How many there are, and their bytes.
    pub(super) fn counted(&self) -> (u64, u64) {
        (self.bytes.len() as u64, self.sum)
    }
}
