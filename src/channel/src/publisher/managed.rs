//! Publishes managed memory.

use super::Publisher;
use crate::managed::{ManagedBlock, ManagedFigures, ManagedRange};
use crate::section::managed::{BLOCK_WORDS, RANGE_WORDS, encode_block, encode_figures, encode_range};

impl Publisher {
    /// Publishes the managed range in a slot, or that the slot is empty. `time` is filled in. Returns false if the file
    /// has no such slot.
    pub fn managed_range(&mut self, slot: u32, range: Option<&ManagedRange>) -> bool {
        let time = self.time();
        let data = range.map_or([0; RANGE_WORDS - 1], |range| {
            encode_range(&ManagedRange { time, ..*range })
        });
        self.record(|layout| layout.managed, slot as usize, data)
    }

    /// Publishes a block in a slot, or that the slot is empty. Returns false if the file has no such slot.
    pub fn managed_block(&mut self, slot: u32, block: Option<&ManagedBlock>) -> bool {
        let data = block.map_or([0; BLOCK_WORDS - 1], encode_block);
        self.record(|layout| layout.managed_blocks, slot as usize, data)
    }

    /// Publishes the figures. Returns false if the file has no place for them.
    pub fn managed_figures(&mut self, figures: &ManagedFigures) -> bool {
        self.record(|layout| layout.managed_figures, 0, encode_figures(figures))
    }
}
