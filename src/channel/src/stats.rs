//! The figures of a device, under PyTorch's names (`torch.cuda.memory_stats()`).

/// A figure over time. `freed` is not stored: it is `allocated - current`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Now.
    pub current: u64,
    /// Highest `current` so far, or since the program reset its peaks.
    pub peak: u64,
    /// Sum of all increases.
    pub allocated: u64,
}

impl Stat {
    /// Returns the sum of all decreases.
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

/// The nine figures that PyTorch keeps per pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Blocks held by the program.
    pub allocation: Stat,
    /// Blocks held by the program or waiting for the GPU. A block becomes allocated and active at once, so
    /// `active.allocated` equals `allocation.allocated`, and the channel stores only one of them.
    pub active: Stat,
    /// Requested bytes of blocks held by the program or waiting for the GPU.
    pub requested_bytes: Stat,
    /// Bytes of blocks held by the program (after rounding).
    pub allocated_bytes: Stat,
    /// Bytes of blocks held by the program or waiting for the GPU. `active_bytes.allocated` equals
    /// `allocated_bytes.allocated`.
    pub active_bytes: Stat,
    /// Segments allocated from the driver.
    pub segment: Stat,
    /// Bytes of physical memory allocated from the driver.
    pub reserved_bytes: Stat,
    /// Free blocks in segments that also have live blocks.
    pub inactive_split: Stat,
    /// Bytes of the inactive splits.
    pub inactive_split_bytes: Stat,
}

/// Number of figures of a pool.
pub(crate) const POOL_STATS: usize = 9;
/// Number of these that every request changes; they come first.
pub(crate) const HOT_STATS: usize = 5;

impl PoolStats {
    /// Returns all nine, in the order of the fields.
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

    /// Returns all nine mutably, in the order of the fields and of [`DeviceStats::all_peaks`].
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

/// All figures of a device: both pools, the peaks of their sum, and the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Figures of the small pool: requests up to 1 MiB.
    pub small: PoolStats,
    /// Figures of the large pool: larger requests.
    pub large: PoolStats,
    /// Peaks of small + large, in the order of [`PoolStats`]'s fields; use [`DeviceStats::all`].
    pub all_peaks: [u64; POOL_STATS],
    /// Number of requests that succeeded only after memory was freed for them.
    pub num_alloc_retries: u64,
    /// Number of requests that failed.
    pub num_ooms: u64,
    /// Number of times that all streams were synchronised.
    pub num_sync_all_streams: u64,
    /// Number of calls that allocated memory from the driver.
    pub num_device_alloc: u64,
    /// Number of calls that returned memory to the driver.
    pub num_device_free: u64,
}

impl DeviceStats {
    /// Returns both pools together, with the peaks of the sum (which are not the sum of the peaks).
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

    /// Returns how these figures contradict themselves, as text; `None` if they are consistent. Contradictory figures
    /// must not be added to any sum.
    pub fn contradiction(&self) -> Option<&'static str> {
        let all = self.all();
        let now = |stat: Stat| stat.current;
        let passed = |pool: &PoolStats| pool.figures().iter().any(|stat| stat.peak < stat.current);
        // A block and its segment may be counted in different pools, so only the sums of both pools are compared.
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

    /// Returns the bytes reserved from the driver and not held by the program: reserved - allocated.
    pub fn cached_bytes(&self) -> u64 {
        let all = self.all();
        all.reserved_bytes.current.saturating_sub(all.allocated_bytes.current)
    }

    /// Returns the cached bytes that queued GPU work still uses: active - allocated.
    pub fn pending_bytes(&self) -> u64 {
        let all = self.all();
        all.active_bytes.current.saturating_sub(all.allocated_bytes.current)
    }
}

/// Whether the sum of both pools overflows in any figure.
fn overflows(stats: &DeviceStats) -> bool {
    let mut parts = stats.small.figures().into_iter().zip(stats.large.figures());
    parts.any(|(small, large)| small.current.checked_add(large.current).is_none())
}

/// A figure of a lane over time. The publisher, which knows all lanes, keeps the peaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStat {
    /// Now.
    pub current: u64,
    /// Sum of all increases.
    pub allocated: u64,
}

/// A lane's figures of one pool, which add to the publisher's figures of that pool. A lane's blocks are active as long
/// as they are allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LanePool {
    /// Blocks held by the program.
    pub allocation: LaneStat,
    /// Bytes that the program requested.
    pub requested_bytes: LaneStat,
    /// Bytes of blocks held by the program (after rounding).
    pub allocated_bytes: LaneStat,
    /// Free blocks in segments that also have live blocks.
    pub inactive_split: LaneStat,
    /// Bytes of the inactive splits.
    pub inactive_split_bytes: LaneStat,
}

/// The figures of a lane: a part of its device's [`DeviceStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneFigures {
    /// Figures of the small pool: requests up to 1 MiB.
    pub small: LanePool,
    /// Figures of the large pool: larger requests.
    pub large: LanePool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures with one block of 60 bytes, of which 50 were requested, in a segment of 100.
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
    fn consistent_figures_have_no_contradiction() {
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
        assert_eq!(exact.contradiction(), None, "nothing is cached and nothing is rounded");
        // A small block may be in memory that is counted in the large pool.
        let mut elsewhere = sound();
        elsewhere.small.allocated_bytes.add(7);
        elsewhere.small.active_bytes.add(7);
        elsewhere.all_peaks[3..5].fill(67);
        assert_eq!(elsewhere.contradiction(), None);
    }

    #[test]
    fn each_rule_finds_its_contradiction() {
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
