//! Counting, under PyTorch's definitions, with the peaks of both pools together.

use gpumem_channel::{DeviceStats, PoolStats, Stat, Touched};

use crate::size::Class;

/// The figures of one device, and which of them changed since they were last published.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) stats: DeviceStats,
    touched: Touched,
}

/// Positions in [`DeviceStats::all_peaks`]: the order of [`PoolStats`]'s fields.
#[derive(Clone, Copy)]
enum Figure {
    Allocation,
    Active,
    Requested,
    Allocated,
    ActiveBytes,
    Segment,
    Reserved,
    Split,
    SplitBytes,
}

#[inline]
fn field(pool: &mut PoolStats, figure: Figure) -> &mut Stat {
    match figure {
        Figure::Allocation => &mut pool.allocation,
        Figure::Active => &mut pool.active,
        Figure::Requested => &mut pool.requested_bytes,
        Figure::Allocated => &mut pool.allocated_bytes,
        Figure::ActiveBytes => &mut pool.active_bytes,
        Figure::Segment => &mut pool.segment,
        Figure::Reserved => &mut pool.reserved_bytes,
        Figure::Split => &mut pool.inactive_split,
        Figure::SplitBytes => &mut pool.inactive_split_bytes,
    }
}

impl Ledger {
    /// Adds to a figure; whether a peak rose.
    #[inline(always)]
    fn add(&mut self, class: Class, figure: Figure, n: u64) -> bool {
        let (pool, other) = match class {
            Class::Small => (&mut self.stats.small, &mut self.stats.large),
            Class::Large | Class::Chunked => (&mut self.stats.large, &mut self.stats.small),
        };
        let stat = field(pool, figure);
        let before = stat.peak;
        stat.add(n);
        let all = stat.current + field(other, figure).current;
        let peak = &mut self.stats.all_peaks[figure as usize];
        let rose = stat.peak != before || all > *peak;
        *peak = all.max(*peak);
        rose
    }

    #[inline(always)]
    fn sub(&mut self, class: Class, figure: Figure, n: u64) {
        let pool = match class {
            Class::Small => &mut self.stats.small,
            Class::Large | Class::Chunked => &mut self.stats.large,
        };
        field(pool, figure).sub(n);
    }

    #[inline(always)]
    fn touch_hot(&mut self, class: Class) {
        let group = if class == Class::Small {
            Touched::SMALL
        } else {
            Touched::LARGE
        };
        self.touched = self.touched.and(group);
    }

    /// Something else than the figures of every request changed.
    #[inline(always)]
    pub(crate) fn touch_cold(&mut self) {
        self.touched = self.touched.and(Touched::COLD);
    }

    /// What changed since the last call.
    #[inline(always)]
    pub(crate) fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    #[inline]
    pub(crate) fn allocated(&mut self, class: Class, size: u64, requested: u64) {
        self.touch_hot(class);
        let rose = self.add(class, Figure::Allocation, 1)
            | self.add(class, Figure::Active, 1)
            | self.add(class, Figure::Requested, requested)
            | self.add(class, Figure::Allocated, size)
            | self.add(class, Figure::ActiveBytes, size);
        if rose {
            self.touch_cold();
        }
    }

    /// The program gave a block back.
    #[inline]
    pub(crate) fn freed(&mut self, class: Class, size: u64) {
        self.touch_hot(class);
        self.sub(class, Figure::Allocation, 1);
        self.sub(class, Figure::Allocated, size);
    }

    /// Nothing uses the block any more. PyTorch counts `requested` until then.
    #[inline]
    pub(crate) fn completed(&mut self, class: Class, size: u64, requested: u64) {
        self.touch_hot(class);
        self.sub(class, Figure::Active, 1);
        self.sub(class, Figure::ActiveBytes, size);
        self.sub(class, Figure::Requested, requested);
    }

    #[inline]
    pub(crate) fn split_added(&mut self, class: Class, size: u64) {
        self.touched = self.touched.and(Touched::SPLIT);
        self.add(class, Figure::Split, 1);
        self.add(class, Figure::SplitBytes, size);
    }

    #[inline]
    pub(crate) fn split_removed(&mut self, class: Class, size: u64) {
        self.touched = self.touched.and(Touched::SPLIT);
        self.sub(class, Figure::Split, 1);
        self.sub(class, Figure::SplitBytes, size);
    }

    pub(crate) fn segment_added(&mut self, class: Class) {
        self.touch_cold();
        self.add(class, Figure::Segment, 1);
    }

    pub(crate) fn segment_removed(&mut self, class: Class) {
        self.touch_cold();
        self.sub(class, Figure::Segment, 1);
    }

    /// Physical memory came, in `calls` calls.
    pub(crate) fn reserved_added(&mut self, class: Class, bytes: u64, calls: u64) {
        self.touch_cold();
        self.add(class, Figure::Reserved, bytes);
        self.stats.num_device_alloc += calls;
    }

    /// Physical memory went, in `calls` calls.
    pub(crate) fn reserved_removed(&mut self, class: Class, bytes: u64, calls: u64) {
        self.touch_cold();
        self.sub(class, Figure::Reserved, bytes);
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

    pub(crate) fn reserved(&self) -> u64 {
        self.stats.small.reserved_bytes.current + self.stats.large.reserved_bytes.current
    }
}
