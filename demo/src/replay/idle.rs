//! A replayer that allocates nothing, to measure the cost of the replay itself.

use std::hint::black_box;

use super::replayer::{Costs, Peaks, Refused, Replayer};

/// Keeps one number per slot, as allocators keep blocks.
pub(super) struct Idle(pub(super) Vec<u64>);

impl Replayer for Idle {
    fn alloc(&mut self, slot: u32, bytes: u64, stream: u16) -> Result<(), Refused> {
        self.0[slot as usize] = black_box(bytes ^ u64::from(stream));
        Ok(())
    }

    fn free(&mut self, slot: u32) -> Result<(), String> {
        black_box(std::mem::take(&mut self.0[slot as usize]));
        Ok(())
    }

    fn clear(&mut self) -> Result<(), String> {
        self.0.fill(0);
        Ok(())
    }

    fn costs(&self) -> Costs {
        Costs::default()
    }

    fn peaks(&mut self) -> Result<Peaks, String> {
        Ok(Peaks::default())
    }
}
