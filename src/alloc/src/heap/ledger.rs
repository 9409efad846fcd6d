//! Counting, under PyTorch's definitions, with the peaks of both pools together.

use gpumem_channel::{DeviceStats, PoolId, PoolStats, Stat, Touched};

use crate::lane::{FIGURES, Figures, PLACES, pool_number};

/// The figures of one device but for what lanes count, with the peaks of all of it; and which of them changed since they were last
/// published.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// What is `active` is not kept here: it is what is allocated and what waits.
    stats: DeviceStats,
    /// What lanes may count, all of them together. With what is counted here it passes no peak.
    granted: Figures,
    /// Blocks of the small and of the large pool that were freed and that the GPU still uses, and their bytes.
    waiting: [Waiting; 2],
    touched: Touched,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Waiting {
    blocks: u64,
    bytes: u64,
}

/// A figure besides those of every request.
#[derive(Clone, Copy)]
enum Figure {
    Segment,
    Reserved,
}

fn field(pool: &mut PoolStats, figure: Figure) -> &mut Stat {
    match figure {
        Figure::Segment => &mut pool.segment,
        Figure::Reserved => &mut pool.reserved_bytes,
    }
}

/// Counts an increase without the peak; whether there may be a new one, of the pool or, with what the other pool has, of all, if lanes
/// count all that was `granted` to them there.
#[inline(always)]
fn increase(stat: &mut Stat, n: u64, other: &Stat, all_peak: u64, granted: [u64; 2]) -> bool {
    stat.current += n;
    stat.allocated += n;
    (stat.current + granted[0] > stat.peak) | (stat.current + other.current + granted[1] > all_peak)
}

impl Ledger {
    /// The figures of a pool and of the other one.
    #[inline(always)]
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

    /// What changed since the last call.
    #[inline(always)]
    pub(crate) fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    /// The figures, lanes' not among them.
    pub(crate) fn stats(&mut self) -> &DeviceStats {
        self.fill_active();
        &self.stats
    }

    fn fill_active(&mut self) {
        let DeviceStats { small, large, .. } = &mut self.stats;
        for (pool, waiting) in [small, large].into_iter().zip(&self.waiting) {
            pool.active.current = pool.allocation.current + waiting.blocks;
            pool.active.allocated = pool.allocation.allocated;
            pool.active_bytes.current = pool.allocated_bytes.current + waiting.bytes;
            pool.active_bytes.allocated = pool.allocated_bytes.allocated;
        }
    }

    /// What was granted to lanes of one figure: of a pool, and of both.
    #[inline(always)]
    fn granted(&self, pool: PoolId, figure: usize) -> [u64; 2] {
        [self.granted[pool_number(pool)][figure], self.granted[2][figure]]
    }

    /// Counts a block that is handed out. Whether peaks have to be [raised](Ledger::raise_peaks) then.
    #[inline(always)]
    #[must_use]
    pub(crate) fn allocated(&mut self, pool: PoolId, size: u64, requested: u64) -> bool {
        self.touch(pool, Touched::SMALL, Touched::LARGE);
        let waits = self.waiting[0].blocks | self.waiting[1].blocks != 0;
        let peaks = self.stats.all_peaks;
        let granted = [0, 1, 2].map(|figure| self.granted(pool, figure));
        let (pool, other) = self.pools(pool);
        let rose = increase(&mut pool.allocation, 1, &other.allocation, peaks[0], granted[0])
            | increase(
                &mut pool.requested_bytes,
                requested,
                &other.requested_bytes,
                peaks[2],
                granted[1],
            )
            | increase(
                &mut pool.allocated_bytes,
                size,
                &other.allocated_bytes,
                peaks[3],
                granted[2],
            );
        // While nothing waits, what is active is what is allocated, and its peak is no lower.
        rose | waits
    }

    /// Raises every peak that is below what is counted here and granted to lanes, which is what these count: what they do not need was
    /// taken back before.
    #[cold]
    #[inline(never)]
    pub(crate) fn raise_peaks(&mut self) {
        self.fill_active();
        let granted = self.granted;
        let DeviceStats {
            small,
            large,
            all_peaks,
            ..
        } = &mut self.stats;
        let mut rose = false;
        let mut raise = |peak: &mut u64, current: u64| {
            rose |= current > *peak;
            *peak = current.max(*peak);
        };
        let (mut small, mut large) = (small.figures_mut(), large.figures_mut());
        for (at, figure) in PLACES {
            let (small, large) = (&mut small[at], &mut large[at]);
            raise(&mut small.peak, small.current + granted[0][figure]);
            raise(&mut large.peak, large.current + granted[1][figure]);
            raise(&mut all_peaks[at], small.current + large.current + granted[2][figure]);
        }
        if rose {
            self.touch_cold();
        }
    }

    /// How much more lanes may count before a peak is passed.
    pub(crate) fn slack(&mut self) -> Figures {
        self.fill_active();
        let mut slack = [[u64::MAX; FIGURES]; 3];
        let (small, large) = (self.stats.small.figures(), self.stats.large.figures());
        for (at, figure) in PLACES {
            let counted = [
                (small[at].peak, small[at].current),
                (large[at].peak, large[at].current),
                (self.stats.all_peaks[at], small[at].current + large[at].current),
            ];
            for (pool, (peak, current)) in counted.into_iter().enumerate() {
                let left = peak.saturating_sub(current + self.granted[pool][figure]);
                slack[pool][figure] = slack[pool][figure].min(left);
            }
        }
        slack
    }

    /// Lanes may count so much more.
    pub(crate) fn grant(&mut self, more: &Figures) {
        for (granted, more) in self.granted.iter_mut().flatten().zip(more.iter().flatten()) {
            *granted += more;
        }
    }

    /// Lanes may count so much less.
    pub(crate) fn withdraw(&mut self, less: &Figures) {
        for (granted, less) in self.granted.iter_mut().flatten().zip(less.iter().flatten()) {
            *granted -= less;
        }
    }

    /// Panics unless this is what was granted, and it passes no peak.
    #[cfg(test)]
    pub(crate) fn check_granted(&self, allowed: &Figures) {
        assert_eq!(&self.granted, allowed);
        let stats = *self.clone().stats();
        let (small, large) = (stats.small.figures(), stats.large.figures());
        for (at, figure) in PLACES {
            let (small, large) = (small[at], large[at]);
            assert!(small.current + allowed[0][figure] <= small.peak);
            assert!(large.current + allowed[1][figure] <= large.peak);
            assert!(small.current + large.current + allowed[2][figure] <= stats.all_peaks[at]);
        }
    }

    /// A block that a lane counted until now.
    pub(crate) fn taken_over(&mut self, pool: PoolId, size: u64, requested: u64) {
        self.touch(pool, Touched::SMALL, Touched::LARGE);
        let (pool, _) = self.pools(pool);
        pool.allocation.current += 1;
        pool.allocated_bytes.current += size;
        pool.requested_bytes.current += requested;
    }

    /// The program gave a block back that nothing uses any more.
    #[inline(always)]
    pub(crate) fn freed(&mut self, pool: PoolId, size: u64, requested: u64) {
        self.touch(pool, Touched::SMALL, Touched::LARGE);
        let (pool, _) = self.pools(pool);
        pool.allocation.sub(1);
        pool.allocated_bytes.sub(size);
        pool.requested_bytes.sub(requested);
    }

    /// The program gave a block back that the GPU still uses. PyTorch counts `requested` until it does not.
    pub(crate) fn waits(&mut self, pool: PoolId, size: u64) {
        self.touch(pool, Touched::SMALL, Touched::LARGE);
        let waiting = &mut self.waiting[usize::from(pool != PoolId::SMALL)];
        waiting.blocks += 1;
        waiting.bytes += size;
        let (pool, _) = self.pools(pool);
        pool.allocation.sub(1);
        pool.allocated_bytes.sub(size);
    }

    /// Nothing uses a block any more that waited.
    pub(crate) fn waited(&mut self, pool: PoolId, size: u64, requested: u64) {
        self.touch(pool, Touched::SMALL, Touched::LARGE);
        let waiting = &mut self.waiting[usize::from(pool != PoolId::SMALL)];
        waiting.blocks -= 1;
        waiting.bytes -= size;
        self.pools(pool).0.requested_bytes.sub(requested);
    }

    /// Counts an inactive split. Whether peaks have to be [raised](Ledger::raise_peaks) then.
    #[inline(always)]
    #[must_use]
    pub(crate) fn split_added(&mut self, pool: PoolId, size: u64) -> bool {
        self.touch(pool, Touched::SMALL_SPLIT, Touched::LARGE_SPLIT);
        let peaks = self.stats.all_peaks;
        let granted = [3, 4].map(|figure| self.granted(pool, figure));
        let (pool, other) = self.pools(pool);
        increase(&mut pool.inactive_split, 1, &other.inactive_split, peaks[7], granted[0])
            | increase(
                &mut pool.inactive_split_bytes,
                size,
                &other.inactive_split_bytes,
                peaks[8],
                granted[1],
            )
    }

    #[inline(always)]
    pub(crate) fn split_removed(&mut self, pool: PoolId, size: u64) {
        self.touch(pool, Touched::SMALL_SPLIT, Touched::LARGE_SPLIT);
        let (pool, _) = self.pools(pool);
        pool.inactive_split.sub(1);
        pool.inactive_split_bytes.sub(size);
    }

    /// Lanes count none of these.
    fn add(&mut self, pool: PoolId, figure: Figure, n: u64) {
        let (pool, other) = self.pools(pool);
        let stat = field(pool, figure);
        stat.add(n);
        let both = stat.current + field(other, figure).current;
        let peak = &mut self.stats.all_peaks[match figure {
            Figure::Segment => 5,
            Figure::Reserved => 6,
        }];
        *peak = both.max(*peak);
        self.touch_cold();
    }

    fn sub(&mut self, pool: PoolId, figure: Figure, n: u64) {
        self.touch_cold();
        let (pool, _) = self.pools(pool);
        field(pool, figure).sub(n);
    }

    pub(crate) fn segment_added(&mut self, pool: PoolId) {
        self.add(pool, Figure::Segment, 1);
    }

    pub(crate) fn segment_removed(&mut self, pool: PoolId) {
        self.sub(pool, Figure::Segment, 1);
    }

    /// Physical memory came, in `calls` calls.
    pub(crate) fn reserved_added(&mut self, pool: PoolId, bytes: u64, calls: u64) {
        self.add(pool, Figure::Reserved, bytes);
        self.stats.num_device_alloc += calls;
    }

    /// Physical memory went, in `calls` calls.
    pub(crate) fn reserved_removed(&mut self, pool: PoolId, bytes: u64, calls: u64) {
        self.sub(pool, Figure::Reserved, bytes);
        self.stats.num_device_free += calls;
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

    /// The most that was ever requested at the same time, if `more` is: beside what lanes count.
    pub(crate) fn requested_peak(&self, more: u64) -> u64 {
        let now = self.stats.small.requested_bytes.current + self.stats.large.requested_bytes.current + more;
        self.stats.all_peaks[2].max(now)
    }

    /// Bytes that are allocated, those that lanes count not among them.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.stats.small.allocated_bytes.current + self.stats.large.allocated_bytes.current
    }

    /// Bytes that are reserved for small requests.
    pub(crate) fn reserved_small(&self) -> u64 {
        self.stats.small.reserved_bytes.current
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.stats.small.reserved_bytes.current + self.stats.large.reserved_bytes.current
    }
}
