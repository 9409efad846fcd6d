//! The scalars of a device, under PyTorch's names (`torch.cuda.memory_stats()`).

/// One figure over time. `freed` is not stored: it is `allocated - current`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Now.
    pub current: u64,
    /// Highest `current` so far, or since the program had its peaks begin anew.
    pub peak: u64,
    /// Sum of all increases.
    pub allocated: u64,
}

impl Stat {
    /// Sum of all decreases.
    pub fn freed(&self) -> u64 {
        self.allocated.wrapping_sub(self.current)
    }

    /// Counts an increase.
    #[inline]
    pub fn add(&mut self, n: u64) {
        self.current += n;
        self.allocated += n;
        self.peak = self.peak.max(self.current);
    }

    /// Counts a decrease.
    #[inline]
    pub fn sub(&mut self, n: u64) {
        self.current = self.current.wrapping_sub(n);
    }
}

/// The nine figures PyTorch keeps per pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Blocks held by the program.
    pub allocation: Stat,
    /// Blocks held by the program or waiting for the GPU. A block becomes both at once: `active.allocated` is that of `allocation`,
    /// and the channel keeps only one of them.
    pub active: Stat,
    /// Bytes the program asked for, of blocks held by the program or waiting for the GPU.
    pub requested_bytes: Stat,
    /// Bytes of blocks held by the program (after rounding).
    pub allocated_bytes: Stat,
    /// Bytes of blocks held by the program or waiting for the GPU. `active_bytes.allocated` is that of `allocated_bytes`.
    pub active_bytes: Stat,
    /// Segments taken from the driver.
    pub segment: Stat,
    /// Bytes of physical memory taken from the driver.
    pub reserved_bytes: Stat,
    /// Free blocks that live neighbours pin in their segment.
    pub inactive_split: Stat,
    /// Bytes of those.
    pub inactive_split_bytes: Stat,
}

/// Figures of a pool.
pub(crate) const POOL_STATS: usize = 9;
/// How many of them every request changes: the first.
pub(crate) const HOT_STATS: usize = 5;

impl PoolStats {
    /// All nine, in the order of the fields.
    pub fn figures(&self) -> [&Stat; POOL_STATS] {
        [
            &self.allocation,
            &self.active,
            &self.requested_bytes,
            &self.allocated_bytes,
            &self.active_bytes,
            &self.segment,
            &self.reserved_bytes,
            &self.inactive_split,
            &self.inactive_split_bytes,
        ]
    }

    /// All nine, in the order of the fields, which is that of [`DeviceStats::all_peaks`].
    pub fn figures_mut(&mut self) -> [&mut Stat; POOL_STATS] {
        [
            &mut self.allocation,
            &mut self.active,
            &mut self.requested_bytes,
            &mut self.allocated_bytes,
            &mut self.active_bytes,
            &mut self.segment,
            &mut self.reserved_bytes,
            &mut self.inactive_split,
            &mut self.inactive_split_bytes,
        ]
    }
}

/// Everything counted on one device: both pools, the peaks of their sum, and the scalars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Requests up to 1 MiB.
    pub small: PoolStats,
    /// Everything larger.
    pub large: PoolStats,
    /// Peaks of small + large, in the order of [`PoolStats`]'s fields; use [`DeviceStats::all`].
    pub all_peaks: [u64; POOL_STATS],
    /// Requests that succeeded only after room was made.
    pub num_alloc_retries: u64,
    /// Requests that failed.
    pub num_ooms: u64,
    /// Times all streams were waited for.
    pub num_sync_all_streams: u64,
    /// Calls that took memory from the driver.
    pub num_device_alloc: u64,
    /// Calls that gave memory back.
    pub num_device_free: u64,
}

impl DeviceStats {
    /// Both pools together, with the peaks of the sum (which are not the sum of the peaks).
    pub fn all(&self) -> PoolStats {
        let mut all = PoolStats::default();
        let parts = self.small.figures().into_iter().zip(self.large.figures());
        for ((sum, (small, large)), peak) in all.figures_mut().into_iter().zip(parts).zip(self.all_peaks) {
            sum.current = small.current.wrapping_add(large.current);
            sum.allocated = small.allocated.wrapping_add(large.allocated);
            sum.peak = peak;
        }
        all
    }

    /// How these figures contradict themselves, in words; `None` where they can be of a publisher that counts right. What does not add up
    /// is to be in no sum.
    pub fn contradiction(&self) -> Option<&'static str> {
        let all = self.all();
        let now = |stat: Stat| stat.current;
        let passed = |pool: &PoolStats| pool.figures().iter().any(|stat| stat.peak < stat.current);
        // A block is of the pool of its size and its segment of that of its own: pools are compared together only.
        let rules = [
            (overflows(self), "its pools add up to more than can be counted"),
            (
                now(all.allocated_bytes) > now(all.reserved_bytes),
                "it has allocated more than it has reserved",
            ),
            (
                now(all.active_bytes) > now(all.reserved_bytes),
                "more is in use than it has reserved",
            ),
            (
                now(all.allocated_bytes) > now(all.active_bytes),
                "it has allocated more than is in use",
            ),
            (
                now(all.requested_bytes) > now(all.active_bytes),
                "more was requested than it has allocated",
            ),
            (
                now(all.inactive_split_bytes) > self.cached_bytes(),
                "more is pinned in free blocks than it has cached",
            ),
            (
                passed(&self.small) || passed(&self.large) || passed(&all),
                "a peak is below what there is now",
            ),
        ];
        rules.into_iter().find_map(|(broken, text)| broken.then_some(text))
    }

    /// Bytes taken from the driver and not held by the program: reserved - allocated.
    pub fn cached_bytes(&self) -> u64 {
        let all = self.all();
        all.reserved_bytes.current.saturating_sub(all.allocated_bytes.current)
    }

    /// Bytes of the cached ones that queued GPU work still uses: active - allocated.
    pub fn pending_bytes(&self) -> u64 {
        let all = self.all();
        all.active_bytes.current.saturating_sub(all.allocated_bytes.current)
    }
}

/// Whether a figure of both pools is more than a word holds.
fn overflows(stats: &DeviceStats) -> bool {
    let mut parts = stats.small.figures().into_iter().zip(stats.large.figures());
    parts.any(|(small, large)| small.current.checked_add(large.current).is_none())
}

/// One figure of a lane over time. Its peaks are the publisher's business, who knows all lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStat {
    /// Now.
    pub current: u64,
    /// Sum of all increases.
    pub allocated: u64,
}

/// What a lane counts per pool, beside what the publisher counts of the same pool. Its blocks are active as long as they are
/// allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LanePool {
    /// Blocks held by the program.
    pub allocation: LaneStat,
    /// Bytes the program asked for.
    pub requested_bytes: LaneStat,
    /// Bytes of blocks held by the program (after rounding).
    pub allocated_bytes: LaneStat,
    /// Free blocks that live neighbours pin in their segment.
    pub inactive_split: LaneStat,
    /// Bytes of those.
    pub inactive_split_bytes: LaneStat,
}

/// What a lane counts: a part of its device's [`DeviceStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneFigures {
    /// Requests up to 1 MiB.
    pub small: LanePool,
    /// Everything larger.
    pub large: LanePool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A publisher that holds a block of 60 bytes, of which 50 were asked for, in a segment of 100.
    fn sound() -> DeviceStats {
        let mut stats = DeviceStats::default();
        for (stat, n) in stats
            .large
            .figures_mut()
            .into_iter()
            .zip([1, 1, 50, 60, 60, 1, 100, 0, 0])
        {
            stat.add(n);
        }
        stats.all_peaks = stats.large.figures().map(|stat| stat.peak);
        stats
    }

    #[test]
    fn figures_that_add_up_contradict_nothing() {
        assert_eq!(DeviceStats::default().contradiction(), None);
        assert_eq!(sound().contradiction(), None);
        let mut exact = sound();
        for stat in [&mut exact.large.requested_bytes, &mut exact.large.reserved_bytes] {
            (stat.current, stat.peak) = (60, 60);
        }
        assert_eq!(
            exact.contradiction(),
            Some("a peak is below what there is now"),
            "of both pools"
        );
        exact.all_peaks[2] = 60;
        assert_eq!(exact.contradiction(), None, "nothing is cached, and nothing rounded");
        // A small block may lie in memory that is counted with the large pool.
        let mut elsewhere = sound();
        elsewhere.small.allocated_bytes.add(7);
        elsewhere.small.active_bytes.add(7);
        elsewhere.all_peaks[3..5].fill(67);
        assert_eq!(elsewhere.contradiction(), None);
    }

    #[test]
    fn each_rule_finds_what_breaks_it() {
        type Break = fn(&mut DeviceStats);
        let table: [(Break, &str); 8] = [
            (
                |s| s.large.reserved_bytes.current = 59,
                "it has allocated more than it has reserved",
            ),
            (
                |s| s.large.active_bytes.current = 101,
                "more is in use than it has reserved",
            ),
            (
                |s| s.large.active_bytes.current = 59,
                "it has allocated more than is in use",
            ),
            (
                |s| s.large.requested_bytes.current = 61,
                "more was requested than it has allocated",
            ),
            (
                |s| s.large.inactive_split_bytes.current = 41,
                "more is pinned in free blocks than it has cached",
            ),
            (|s| s.large.allocation.peak = 0, "a peak is below what there is now"),
            (|s| s.all_peaks[6] = 99, "a peak is below what there is now"),
            (
                |s| s.small.reserved_bytes.current = u64::MAX,
                "its pools add up to more than can be counted",
            ),
        ];
        for (break_it, text) in table {
            let mut stats = sound();
            break_it(&mut stats);
            assert_eq!(stats.contradiction(), Some(text));
        }
    }
}
