//! Idle plain segments back to the driver before new memory is taken: by age when the budget's share is used up
//! (`garbage_collection_threshold`), and those that are too large to be split for a request that finds no memory
//! (`max_split_size`).
//!
//! PyTorch's rules (`garbage_collect_cached_blocks`, `release_available_cached_blocks` in `c10/cuda/CUDACachingAllocator.cpp`),
//! but that age is counted in frees, not in requests.

use std::cmp::Reverse;

use gpumem_channel::SegmentKind;

use crate::error::DeviceError;
use crate::heap::Heap;
use crate::heap::allocate::Request;
use crate::heap::release::going::Going;
use crate::size::Class;

/// A wholly free plain segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Idle {
    slot: u32,
    block: u32,
    addr: u64,
    bytes: u64,
    /// Frees since it was used.
    age: u64,
}

impl From<Idle> for Going {
    fn from(Idle { slot, addr, .. }: Idle) -> Going {
        Going::Plain { slot, addr }
    }
}

impl Heap {
    /// Bytes that are reserved above the threshold from which on idle segments are looked for.
    fn above_threshold(&self) -> u64 {
        let threshold = match (self.collect_at, self.budget) {
            (Some(part), Some(budget)) => (budget as f64 * part) as u64,
            _ => u64::MAX,
        };
        self.ledger.reserved().saturating_sub(threshold)
    }

    /// Gives segments back that have been idle for longer than others, if more is reserved than the threshold allows. Whether there
    /// was one: then the device was waited for, and blocks may have become free. What the driver does not take stays in the cache.
    pub(in crate::heap) fn collect_idle(&mut self, request: &Request) -> Result<bool, DeviceError> {
        let arena = request.arena;
        if self.above_threshold() == 0 || self.has_made_room() || self.capturing() || self.idle(arena).next().is_none()
        {
            return Ok(false);
        }
        self.settle(request)?;
        let idle: Vec<Idle> = self.idle(arena).filter(|idle| self.is_unused(idle.block)).collect();
        let chosen = oldest(&idle, self.above_threshold());
        let going = chosen.into_iter().map(|at| Going::from(idle[at]));
        self.give_back_for(request, going.collect())?;
        Ok(true)
    }

    /// Segments that are too large to be split, so that they go before everything else does: one that is large enough for a request that
    /// found no memory, or the largest until they are.
    pub(in crate::heap) fn spare_oversize(&self, request: &Request) -> Vec<Going> {
        let spare = self.idle(request.arena).filter(|idle| self.is_unused(idle.block));
        let mut oversize: Vec<Idle> = spare.filter(|segment| !self.sizes.takes(0, segment.bytes)).collect();
        let request = request.size;
        oversize.sort_by_key(|segment| (segment.bytes, segment.slot));
        let enough = oversize.partition_point(|segment| segment.bytes < request);
        if let Some(segment) = oversize.get(enough) {
            return vec![Going::from(*segment)];
        }
        let mut room = 0;
        let largest_first = oversize.into_iter().rev().take_while(|segment| {
            let goes = room < request;
            room += segment.bytes;
            goes
        });
        largest_first.map(Going::from).collect()
    }

    /// Of a pool what has been idle for longest, until it is so many bytes: free segments, whole ones.
    pub(in crate::heap) fn spare_beyond(&self, pool: u16, bytes: u64) -> Vec<Going> {
        let idle = self.idle_of(pool, |_| true).filter(|idle| self.is_unused(idle.block));
        let mut oldest: Vec<Idle> = idle.collect();
        oldest.sort_by_key(|idle| (Reverse(idle.age), idle.slot));
        let mut gone = 0;
        let goes = oldest.into_iter().take_while(|idle| {
            let goes = gone < bytes;
            gone += idle.bytes;
            goes
        });
        goes.map(Going::from).collect()
    }

    /// Large ones of an arena that may be given back, once no queued work uses them.
    fn idle(&self, arena: u16) -> impl Iterator<Item = Idle> {
        self.idle_of(arena, |class| class == Class::Large)
    }

    /// The same of certain classes.
    fn idle_of(&self, arena: u16, of: impl Fn(Class) -> bool) -> impl Iterator<Item = Idle> {
        let may = self.arenas.may_shrink(arena);
        let segments = self.segments.iter().filter(move |(_, segment)| {
            let plain = segment.kind == SegmentKind::Plain && of(segment.class);
            may && plain && segment.arena == arena
        });
        segments
            .filter(|(_, segment)| self.is_free(segment))
            .map(|(slot, segment)| Idle {
                slot,
                block: segment.first,
                addr: segment.addr,
                bytes: segment.size,
                age: self.frees - segment.used_at.max(self.blocks[segment.first].freed_at),
            })
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
