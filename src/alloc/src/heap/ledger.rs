//! Counting, under PyTorch's definitions, with the peaks of both pools together.

use gpumem_channel::{DeviceStats, PoolStats};

use crate::size::Class;

/// The figures of one device.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) stats: DeviceStats,
}

impl Ledger {
    #[inline]
    fn pool(&mut self, class: Class) -> &mut PoolStats {
        match class {
            Class::Small => &mut self.stats.small,
            Class::Large | Class::Chunked => &mut self.stats.large,
        }
    }

    #[inline]
    pub(crate) fn allocated(&mut self, class: Class, size: u64, requested: u64) {
        let pool = self.pool(class);
        pool.allocation.add(1);
        pool.active.add(1);
        pool.requested_bytes.add(requested);
        pool.allocated_bytes.add(size);
        pool.active_bytes.add(size);
        let (small, large, peaks) = (&self.stats.small, &self.stats.large, &mut self.stats.all_peaks);
        raise(&mut peaks[0], small.allocation.current + large.allocation.current);
        raise(&mut peaks[1], small.active.current + large.active.current);
        raise(
            &mut peaks[2],
            small.requested_bytes.current + large.requested_bytes.current,
        );
        raise(
            &mut peaks[3],
            small.allocated_bytes.current + large.allocated_bytes.current,
        );
        raise(&mut peaks[4], small.active_bytes.current + large.active_bytes.current);
    }

    /// The program gave a block back.
    #[inline]
    pub(crate) fn freed(&mut self, class: Class, size: u64) {
        let pool = self.pool(class);
        pool.allocation.sub(1);
        pool.allocated_bytes.sub(size);
    }

    /// Nothing uses the block any more. PyTorch counts `requested` until then.
    #[inline]
    pub(crate) fn completed(&mut self, class: Class, size: u64, requested: u64) {
        let pool = self.pool(class);
        pool.active.sub(1);
        pool.active_bytes.sub(size);
        pool.requested_bytes.sub(requested);
    }

    #[inline]
    pub(crate) fn split_added(&mut self, class: Class, size: u64) {
        let pool = self.pool(class);
        pool.inactive_split.add(1);
        pool.inactive_split_bytes.add(size);
        let (small, large, peaks) = (&self.stats.small, &self.stats.large, &mut self.stats.all_peaks);
        raise(
            &mut peaks[7],
            small.inactive_split.current + large.inactive_split.current,
        );
        raise(
            &mut peaks[8],
            small.inactive_split_bytes.current + large.inactive_split_bytes.current,
        );
    }

    #[inline]
    pub(crate) fn split_removed(&mut self, class: Class, size: u64) {
        let pool = self.pool(class);
        pool.inactive_split.sub(1);
        pool.inactive_split_bytes.sub(size);
    }

    pub(crate) fn segment_added(&mut self, class: Class) {
        self.pool(class).segment.add(1);
        let all = self.stats.small.segment.current + self.stats.large.segment.current;
        raise(&mut self.stats.all_peaks[5], all);
    }

    pub(crate) fn segment_removed(&mut self, class: Class) {
        self.pool(class).segment.sub(1);
    }

    pub(crate) fn reserved_added(&mut self, class: Class, bytes: u64) {
        self.pool(class).reserved_bytes.add(bytes);
        let all = self.stats.small.reserved_bytes.current + self.stats.large.reserved_bytes.current;
        raise(&mut self.stats.all_peaks[6], all);
    }

    pub(crate) fn reserved_removed(&mut self, class: Class, bytes: u64) {
        self.pool(class).reserved_bytes.sub(bytes);
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.stats.small.reserved_bytes.current + self.stats.large.reserved_bytes.current
    }
}

#[inline]
fn raise(peak: &mut u64, now: u64) {
    *peak = (*peak).max(now);
}
