//! Counting, under PyTorch's definitions, with the peaks of both pools together.

mod grant;

use gpumem_channel::{DeviceStats, PoolId, PoolStats, Touched};

use crate::counts::{BOTH, Counts, FIGURES, Figures, PLACES, pool_number};

/// The figures of one device but for what lanes count, with the peaks of all of it; and which of them changed since they were last
/// published.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// Of what `own` counts no more than the peaks is kept here, of what is `active` neither: it is what is allocated and what waits.
    stats: DeviceStats,
    pub(super) own: Counts,
    /// What the heap and all lanes are allowed to count. With what waits it passes no peak.
    granted: Figures,
    /// Of which figures nothing is left below the peak that nobody is allowed to count.
    spent: [[bool; FIGURES]; 3],
    /// Blocks of the small and of the large pool that were freed and that the GPU still uses, and their bytes.
    waiting: [Waiting; 2],
    /// The most bytes that were requested at the same time before peaks were reset, and the most that small requests held.
    requested_before: u64,
    small_before: u64,
    /// Bytes that are reserved and in no segment.
    loose: u64,
    touched: Touched,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Waiting {
    blocks: u64,
    bytes: u64,
}

impl Waiting {
    /// What waits of a figure of the channel's.
    fn of(&self, at: usize) -> u64 {
        match at {
            ACTIVE => self.blocks,
            ACTIVE_BYTES => self.bytes,
            _ => 0,
        }
    }
}

/// Where what is active is among a pool's figures as the channel has them.
const ACTIVE: usize = 1;
const ACTIVE_BYTES: usize = 4;

/// The same of segments and of reserved bytes, which no request counts.
const SEGMENT: usize = 5;
const RESERVED_BYTES: usize = 6;

impl Ledger {
    /// The figures of a pool and of the other one.
    fn pools(&mut self, pool: PoolId) -> (&mut PoolStats, &mut PoolStats) {
        match pool {
            PoolId::SMALL => (&mut self.stats.small, &mut self.stats.large),
            _ => (&mut self.stats.large, &mut self.stats.small),
        }
    }

    #[inline(always)]
    fn touch(&mut self, pool: PoolId, small: Touched, large: Touched) {
        self.touched = self.touched.and(if pool == PoolId::SMALL { small } else { large });
    }

    /// Something else than the figures of every request changed.
    #[inline(always)]
    pub(crate) fn touch_cold(&mut self) {
        self.touched = self.touched.and(Touched::COLD);
    }

    /// Whether more changed than the figures of every request: peaks, or inactive splits that no event tells of.
    #[inline(always)]
    pub(crate) fn more_changed(&self) -> bool {
        let more = Touched::COLD.and(Touched::SMALL_SPLIT).and(Touched::LARGE_SPLIT);
        self.touched.has(more)
    }

    /// Whether peaks or anything else rare changed.
    #[inline(always)]
    pub(crate) fn rose(&self) -> bool {
        self.touched.has(Touched::COLD)
    }

    /// The figures, lanes' not among them.
    pub(crate) fn stats(&mut self) -> &DeviceStats {
        self.refresh(Touched::ALL);
        &self.stats
    }

    /// What changed since the last call, and the figures with that.
    #[inline(always)]
    pub(crate) fn changed(&mut self) -> (&DeviceStats, Touched) {
        let touched = std::mem::take(&mut self.touched);
        self.refresh(touched);
        (&self.stats, touched)
    }

    #[inline(always)]
    fn refresh(&mut self, touched: Touched) {
        let DeviceStats { small, large, .. } = &mut self.stats;
        let small = (small, Touched::SMALL.and(Touched::SMALL_SPLIT));
        let large = (large, Touched::LARGE.and(Touched::LARGE_SPLIT));
        for (number, (pool, groups)) in [small, large].into_iter().enumerate() {
            if !touched.has(groups) {
                continue;
            }
            let (current, came) = (self.own.current(number), self.own.came(number));
            for (at, figure) in PLACES {
                let stat = &mut *pool.figures_mut()[at];
                stat.current = current[figure] + self.waiting[number].of(at);
                stat.allocated = came[figure];
            }
        }
    }

    /// Counts a block that is handed out. If it cannot, more has to be allowed first.
    #[inline(always)]
    #[must_use]
    pub(crate) fn allocated(&mut self, pool: PoolId, size: u64, requested: u64) -> bool {
        self.touch(pool, Touched::SMALL, Touched::LARGE);
        self.own.allocate(pool_number(pool), requested, size)
    }

    /// A block that a lane counted until now, with its leave to.
    pub(crate) fn taken_over(&mut self, pool: PoolId, size: u64, requested: u64) {
        self.touch(pool, Touched::SMALL, Touched::LARGE);
        self.own.take_over(pool_number(pool), [1, requested, size, 0, 0]);
    }

    /// The program gave a block back that nothing uses any more.
    #[inline(always)]
    pub(crate) fn freed(&mut self, pool: PoolId, size: u64, requested: u64) {
        self.touch(pool, Touched::SMALL, Touched::LARGE);
        self.own.subtract(pool_number(pool), [1, requested, size, 0, 0]);
    }

    /// The program gave a block back that the GPU still uses. PyTorch counts `requested` until it does not.
    pub(crate) fn waits(&mut self, pool: PoolId, size: u64) {
        self.touch(pool, Touched::SMALL, Touched::LARGE);
        let number = pool_number(pool);
        self.waiting[number].blocks += 1;
        self.waiting[number].bytes += size;
        // Other figures may have room now than those that had the least.
        self.spent = Default::default();
        // It is still active: what waits leaves no room for others.
        let less = [1, 0, size, 0, 0];
        self.own.hand_over(number, less);
        for row in [number, BOTH] {
            for (granted, less) in self.granted[row].iter_mut().zip(less) {
                *granted -= less;
            }
        }
    }

    /// Nothing uses a block any more that waited.
    pub(crate) fn waited(&mut self, pool: PoolId, size: u64, requested: u64) {
        self.touch(pool, Touched::SMALL, Touched::LARGE);
        let number = pool_number(pool);
        self.waiting[number].blocks -= 1;
        self.waiting[number].bytes -= size;
        // That leaves room for others.
        self.spent = Default::default();
        self.own.subtract(number, [0, requested, 0, 0, 0]);
    }

    /// Counts an inactive split. If it cannot, more has to be allowed first.
    #[inline(always)]
    #[must_use]
    pub(crate) fn split_added(&mut self, pool: PoolId, size: u64) -> bool {
        self.touch(pool, Touched::SMALL_SPLIT, Touched::LARGE_SPLIT);
        self.own.add_split(pool_number(pool), size)
    }

    #[inline(always)]
    pub(crate) fn split_removed(&mut self, pool: PoolId, size: u64) {
        self.touch(pool, Touched::SMALL_SPLIT, Touched::LARGE_SPLIT);
        self.own.subtract(pool_number(pool), [0, 0, 0, 1, size]);
    }

    /// Lanes count none of these.
    fn add(&mut self, pool: PoolId, at: usize, n: u64) {
        let (pool, other) = self.pools(pool);
        let stat = &mut *pool.figures_mut()[at];
        stat.add(n);
        let both = stat.current + other.figures()[at].current;
        let peak = &mut self.stats.all_peaks[at];
        *peak = both.max(*peak);
        self.touch_cold();
    }

    fn sub(&mut self, pool: PoolId, at: usize, n: u64) {
        self.touch_cold();
        let (pool, _) = self.pools(pool);
        pool.figures_mut()[at].sub(n);
    }

    pub(crate) fn segment_added(&mut self, pool: PoolId) {
        self.add(pool, SEGMENT, 1);
    }

    pub(crate) fn segment_removed(&mut self, pool: PoolId) {
        self.sub(pool, SEGMENT, 1);
    }

    /// The peaks of what no request counts are what there is now.
    fn reset_cold_peaks(&mut self) {
        let DeviceStats {
            small,
            large,
            all_peaks,
            ..
        } = &mut self.stats;
        for at in [SEGMENT, RESERVED_BYTES] {
            all_peaks[at] = 0;
            for pool in [&mut *small, &mut *large] {
                let stat = &mut *pool.figures_mut()[at];
                stat.peak = stat.current;
                all_peaks[at] += stat.current;
            }
        }
    }

    /// Calls that took physical memory so far.
    pub(crate) fn device_allocs(&self) -> u64 {
        self.stats.num_device_alloc
    }

    /// Physical memory came, in `calls` calls.
    pub(crate) fn reserved_added(&mut self, pool: PoolId, bytes: u64, calls: u64) {
        self.add(pool, RESERVED_BYTES, bytes);
        self.stats.num_device_alloc += calls;
    }

    /// Physical memory went, in `calls` calls.
    pub(crate) fn reserved_removed(&mut self, pool: PoolId, bytes: u64, calls: u64) {
        self.sub(pool, RESERVED_BYTES, bytes);
        self.stats.num_device_free += calls;
    }

    /// Physical memory that the driver did not take back, and that is nobody's: counted with that for large requests.
    pub(crate) fn loose_added(&mut self, bytes: u64) {
        self.loose += bytes;
        self.reserved_added(PoolId::LARGE, bytes, 0);
    }

    /// It became somebody's, or went, in `calls` calls.
    pub(crate) fn loose_removed(&mut self, bytes: u64, calls: u64) {
        self.loose -= bytes;
        self.reserved_removed(PoolId::LARGE, bytes, calls);
    }

    /// Bytes of what is reserved that are nobody's.
    pub(crate) fn loose(&self) -> u64 {
        self.loose
    }

    pub(crate) fn retried(&mut self) {
        self.touch_cold();
        self.stats.num_alloc_retries += 1;
    }

    pub(crate) fn ran_out(&mut self) {
        self.touch_cold();
        self.stats.num_ooms += 1;
    }

    pub(crate) fn synchronized(&mut self) {
        self.touch_cold();
        self.stats.num_sync_all_streams += 1;
    }

    /// Bytes that were freed and that the GPU still uses.
    pub(crate) fn pending(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.bytes).sum()
    }

    /// Bytes that are requested, and `more`: what lanes count.
    pub(crate) fn requested(&self, more: u64) -> u64 {
        self.own.current(0)[1] + self.own.current(1)[1] + more
    }

    /// The most that was ever requested at the same time, if `more` is: beside what lanes count.
    pub(crate) fn requested_peak(&self, more: u64) -> u64 {
        let now = self.requested(more);
        self.stats.all_peaks[2].max(self.requested_before).max(now)
    }

    /// Bytes that are allocated, those that lanes count not among them.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.own.current(0)[2] + self.own.current(1)[2]
    }

    /// The most bytes that small requests ever held at the same time.
    pub(crate) fn small_peak(&self) -> u64 {
        self.stats.small.allocated_bytes.peak.max(self.small_before)
    }

    /// Bytes that are reserved for small requests.
    pub(crate) fn reserved_small(&self) -> u64 {
        self.stats.small.reserved_bytes.current
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.stats.small.reserved_bytes.current + self.stats.large.reserved_bytes.current
    }
}
