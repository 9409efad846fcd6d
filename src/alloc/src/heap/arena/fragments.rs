//! Free memory as a monitor looks at it: no request is served from two pools, nor from a pool that is another's.

use super::COMMON;
use crate::free::FreeBlocks;
use crate::heap::Heap;

/// Free memory, but for that of private pools: nothing gives it back or moves it while they live.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fragments {
    pub(crate) free: FreeBlocks,
    /// Bytes of the largest free block of each pool, and of what is no pool's, together.
    pub(crate) largest: u64,
}

impl Heap {
    /// What is set aside counts in the total only.
    pub(crate) fn fragments(&self) -> Fragments {
        let mut all = Fragments::default();
        all.free.total = self.free_bytes();
        let pools = self.arenas.iter().map(|(number, _)| number);
        for arena in std::iter::once(COMMON).chain(pools) {
            let its = self.indexed_free(self.streams.all_of(arena));
            if !self.arenas.may_shrink(arena) {
                all.free.total = all.free.total.saturating_sub(its.total);
                continue;
            }
            all.free.largest = all.free.largest.max(its.largest);
            all.free.count += its.count;
            all.largest += its.largest;
        }
        all
    }

    /// The free blocks of lines, but for what is set aside.
    pub(in crate::heap) fn indexed_free(&self, lines: impl Iterator<Item = u16>) -> FreeBlocks {
        let mut free = FreeBlocks::default();
        for index in lines.flat_map(|at| &self.streams.line(at).free) {
            let (largest, count) = index.largest_and_count();
            free.total += index.bytes();
            free.largest = free.largest.max(largest);
            free.count += count;
        }
        free
    }
}
