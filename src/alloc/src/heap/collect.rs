//! Idle plain segments back to the driver before new memory is taken: by age when the budget's share is used up
//! (`garbage_collection_threshold`), and those that are too large to be split for a request that finds no memory
//! (`max_split_size`).
//!
//! PyTorch's rules (`garbage_collect_cached_blocks`, `release_available_cached_blocks` in `c10/cuda/CUDACachingAllocator.cpp`),
//! but that age is counted in frees, not in requests.

use gpumem_channel::{BlockState, SegmentKind};

use super::Heap;
use super::allocate::Request;
use crate::error::DeviceError;
use crate::size::Class;

/// A wholly free plain segment of the large pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Idle {
    slot: u32,
    bytes: u64,
    /// Frees since it was used.
    age: u64,
}

/// The bytes that may be reserved before idle segments are looked for.
pub(super) fn threshold(part: Option<f64>, budget: Option<u64>) -> u64 {
    match (part, budget) {
        (Some(threshold), Some(budget)) => (budget as f64 * threshold) as u64,
        _ => u64::MAX,
    }
}

impl Heap {
    /// Gives segments back that have been idle for longer than others, if more is reserved than the threshold allows. Whether there
    /// was one: then the device was waited for, and blocks may have become free. What the driver does not take stays in the cache.
    pub(super) fn collect_idle(&mut self, request: &Request) -> Result<bool, DeviceError> {
        let arena = request.arena;
        if self.ledger.reserved() <= self.collect_above || self.capturing() || self.idle(arena).is_empty() {
            return Ok(false);
        }
        self.settle(Some(request))?;
        let idle = self.idle(arena);
        let chosen = oldest(&idle, self.ledger.reserved() - self.collect_above);
        self.give_back_idle(chosen.into_iter().map(|at| idle[at]));
        Ok(true)
    }

    /// Gives segments back that are too large to be split, so that a request that found no memory may. To be called after the
    /// device was waited for. Whether it makes room enough.
    pub(super) fn release_oversize(&mut self, request: &Request) -> bool {
        let mut oversize = self.idle(request.arena);
        let request = request.size;
        oversize.retain(|segment| !self.sizes.takes(0, segment.bytes));
        oversize.sort_by_key(|segment| (segment.bytes, segment.slot));
        // One that is large enough, or the largest until they are.
        let enough = oversize.partition_point(|segment| segment.bytes < request);
        if enough < oversize.len() {
            return self.give_back_idle([oversize[enough]].into_iter()) > 0;
        }
        let mut room = 0;
        let mut largest_first = oversize.into_iter().rev();
        while room < request {
            let Some(segment) = largest_first.next() else {
                return false;
            };
            room += self.give_back_idle([segment].into_iter());
        }
        true
    }

    /// The bytes that the driver took.
    fn give_back_idle(&mut self, segments: impl Iterator<Item = Idle>) -> u64 {
        let before = self.ledger.reserved();
        for segment in segments {
            let _ = self.release_plain(segment.slot);
        }
        let freed = before - self.ledger.reserved();
        if freed > 0 {
            self.tell_release(freed);
            self.tell_figures();
        }
        freed
    }

    /// Those of an arena that may be given back.
    fn idle(&self, arena: u16) -> Vec<Idle> {
        if !self.arenas.may_shrink(arena) {
            return Vec::new();
        }
        let idle = |(slot, segment): (u32, &super::segment::Segment)| {
            let plain = segment.kind == SegmentKind::Plain && segment.class == Class::Large;
            if segment.arena != arena || !plain || segment.first != segment.last {
                return None;
            }
            let block = &self.blocks[segment.first];
            (block.state == BlockState::Free).then(|| Idle {
                slot,
                bytes: segment.size,
                age: self.frees - segment.used_at.max(block.freed_at),
            })
        };
        self.segments.iter().filter_map(idle).collect()
    }
}

/// Which segments go until `target` bytes have: those that are at least as old as the average, all of them, so that this is not needed
/// again soon; then those of the rest, and so on.
fn oldest(idle: &[Idle], target: u64) -> Vec<usize> {
    let mut left: Vec<usize> = (0..idle.len()).collect();
    let mut chosen = Vec::new();
    let mut bytes = 0;
    while bytes < target && !left.is_empty() {
        let total: u128 = left.iter().map(|at| u128::from(idle[*at].age)).sum();
        let count = left.len() as u128;
        let (old, young) = left
            .into_iter()
            .partition(|at| u128::from(idle[*at].age) * count >= total);
        left = young;
        bytes += old.iter().map(|at| idle[*at].bytes).sum::<u64>();
        chosen.extend::<Vec<usize>>(old);
    }
    chosen
}

#[cfg(test)]
#[path = "collect_tests.rs"]
mod tests;
