//! Pages of 2 MiB that small plain allocations share, as CUDA's do: an H100 with driver 580 places those below 2 MiB side by side, at multiples
//! of 512 bytes, and gives a page back with the last one in it; larger ones have pages of their own (2026-11-26, `cudaMalloc` and
//! `cudaMemGetInfo`).

use std::collections::{BTreeMap, BTreeSet};

use super::GRANULARITY;

/// What blocks are multiples of.
const UNIT: u64 = 512;

/// What is free in them.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// By address, and by bytes and address.
    gaps: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Pages {
    /// Whether an allocation of so many bytes shares its page.
    pub(super) fn shares(bytes: u64) -> bool {
        bytes > 0 && bytes < GRANULARITY && bytes.next_multiple_of(UNIT) < GRANULARITY
    }

    /// Whether there is room for a block of so many bytes.
    pub(super) fn has(&self, bytes: u64) -> bool {
        self.best(bytes).is_some()
    }

    fn best(&self, bytes: u64) -> Option<(u64, u64)> {
        let bytes = bytes.next_multiple_of(UNIT);
        self.by_size.range((bytes, 0)..).next().copied()
    }

    /// A page more.
    pub(super) fn add(&mut self, addr: u64) {
        self.insert(addr, GRANULARITY);
    }

    /// Where a block of so many bytes goes, if there is room.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let (gap, addr) = self.best(bytes)?;
        let bytes = bytes.next_multiple_of(UNIT);
        self.remove(addr, gap);
        if gap > bytes {
            self.insert(addr + bytes, gap - bytes);
        }
        Some(addr)
    }

    /// A block goes. Whether its page goes with it.
    pub(super) fn give_back(&mut self, addr: u64, bytes: u64) -> bool {
        let page = addr - addr % GRANULARITY;
        let (mut from, mut to) = (addr, addr + bytes.next_multiple_of(UNIT));
        if let Some((&at, &gap)) = self.gaps.range(page..addr).next_back()
            && at + gap == from
        {
            self.remove(at, gap);
            from = at;
        }
        if to < page + GRANULARITY
            && let Some(&gap) = self.gaps.get(&to)
        {
            self.remove(to, gap);
            to += gap;
        }
        let whole = to - from == GRANULARITY;
        if !whole {
            self.insert(from, to - from);
        }
        whole
    }

    fn insert(&mut self, addr: u64, gap: u64) {
        self.gaps.insert(addr, gap);
        self.by_size.insert((gap, addr));
    }

    fn remove(&mut self, addr: u64, gap: u64) {
        self.gaps.remove(&addr);
        self.by_size.remove(&(gap, addr));
    }
}
