//! The figures of a device, in two alternating cells: whenever the writer is stopped, one of them is complete.
//!
//! Every write goes to the cell that was not written last. That cell receives what changed now, and what changed at the
//! write before (which went to the other cell). Changes are tracked in groups of figures, so that a request that hits
//! the cache stores a dozen words instead of all seventy.
//!
//! Most requests change only counts that follow from their events. So only one in many of them writes a cell, and a
//! reader adds the events since then to the newest cell's figures ([`follow`]). Such events are marked. An unmarked
//! event ends this, and is followed by a write of a cell.

use crate::format::words::{STATS, STATS_CELL};
use crate::seqlock;
use crate::stats::{DeviceStats, HOT_STATS, POOL_STATS, PoolStats, Stat};
use crate::word::Word;

pub(crate) use lanes::LaneCells;
#[cfg(test)]
pub(crate) use read::try_read;
pub(crate) use read::{Cell, Decode, of_lane, of_publisher, read, read_copies};
pub(crate) use sum::{add, figures_of, follow, reconcile, settle};

mod lanes;
mod read;
mod sum;

/// The set of groups of a device's figures that changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched(u8);

impl Touched {
    /// `current` and `allocated` of the small pool's allocation, active, requested, allocated and active bytes.
    pub const SMALL: Touched = Touched(1);
    /// The same figures of the large pool.
    pub const LARGE: Touched = Touched(2);
    /// `current` and `allocated` of the small pool's inactive splits and their bytes.
    pub const SMALL_SPLIT: Touched = Touched(4);
    /// The same figures of the large pool.
    pub const LARGE_SPLIT: Touched = Touched(8);
    /// Anything else: peaks, segments, reserved bytes, scalars.
    pub const COLD: Touched = Touched(16);
    /// All groups.
    pub const ALL: Touched = Touched(31);

    /// Returns the union of both sets.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, other: Touched) -> Touched {
        Touched(self.0 | other.0)
    }

    /// Whether the set has any of these groups.
    #[inline(always)]
    pub const fn has(self, group: Touched) -> bool {
        self.0 & group.0 != 0
    }
}

// Words of a cell: 0 sequence, 1 events published before it, then the groups.
const EVENTS: usize = 1;
const SMALL: usize = 2;
const LARGE: usize = SMALL + HOT_WORDS;
const SMALL_SPLIT: usize = LARGE + HOT_WORDS;
const LARGE_SPLIT: usize = SMALL_SPLIT + SPLIT_WORDS;
const COLD: usize = LARGE_SPLIT + SPLIT_WORDS;
const HOT_WORDS: usize = 8;
const SPLIT_WORDS: usize = 4;
const COLD_WORDS: usize = 2 * (HOT_STATS + 2 + 2 * 3) + POOL_STATS + 5;
const _: () = assert!(COLD + COLD_WORDS <= STATS_CELL);

/// Returns how many operations may defer their figures to their events before a cell is written again. The ring must
/// still hold these events, and a reader has to read at most four kilobytes of them.
fn deferrable_events(ring: usize) -> u64 {
    ring.min(64) as u64 - 1
}

/// The writer's private state: which cell is next, and which groups each cell still lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellWriter {
    ticket: u64,
    lacks: [Touched; 2],
    /// The last event to which an operation may defer its figures.
    until: u64,
    /// Number of events after a write of a cell to which figures may be deferred.
    most: u64,
}

impl CellWriter {
    /// Makes the state for a device whose publisher has a ring of `ring` events.
    pub(crate) fn new(ring: usize) -> CellWriter {
        CellWriter {
            ticket: 0,
            lacks: [Touched::ALL; 2],
            until: 0,
            most: deferrable_events(ring),
        }
    }

    /// Whether an operation may defer its figures to its event, the last of `events`. A reader then adds the event to
    /// the newest cell's figures.
    #[inline(always)]
    pub(crate) fn defers(&self, events: u64) -> bool {
        events <= self.until
    }

    /// Stops deferring until the next write of a cell: an event's effect on the figures did not follow from it.
    pub(crate) fn stop_deferring(&mut self) {
        self.until = 0;
    }

    /// Publishes `stats`, which are the figures after `events` events, into one of the two `cells` of a device.
    #[inline(always)]
    pub(crate) fn write<W: Word>(&mut self, cells: &[W; STATS], stats: &DeviceStats, touched: Touched, events: u64) {
        let turn = (self.ticket & 1) as usize;
        self.lacks[turn ^ 1] = self.lacks[turn ^ 1].and(touched);
        let touched = std::mem::take(&mut self.lacks[turn]).and(touched);
        let cell = &cells[turn * STATS_CELL..][..STATS_CELL];
        seqlock::begin(cell, self.ticket);
        cell[EVENTS].put(events);
        if touched.has(Touched::SMALL) {
            store(&cell[SMALL..][..HOT_WORDS], hot(&stats.small));
        }
        if touched.has(Touched::LARGE) {
            store(&cell[LARGE..][..HOT_WORDS], hot(&stats.large));
        }
        if touched.has(Touched::SMALL_SPLIT) {
            store(&cell[SMALL_SPLIT..][..SPLIT_WORDS], split(&stats.small));
        }
        if touched.has(Touched::LARGE_SPLIT) {
            store(&cell[LARGE_SPLIT..][..SPLIT_WORDS], split(&stats.large));
        }
        if touched.has(Touched::COLD) {
            store_cold(&cell[COLD..][..COLD_WORDS], stats);
        }
        seqlock::end(cell, self.ticket);
        self.ticket += 1;
        self.until = events + self.most;
    }
}

/// Returns a pool's figures that every request changes. `active` has the same sums of increases as `allocation` and the
/// allocated bytes: a block becomes both at once.
#[inline(always)]
fn hot(pool: &PoolStats) -> [u64; HOT_WORDS] {
    [
        pool.allocation.current,
        pool.allocation.allocated,
        pool.active.current,
        pool.requested_bytes.current,
        pool.requested_bytes.allocated,
        pool.allocated_bytes.current,
        pool.allocated_bytes.allocated,
        pool.active_bytes.current,
    ]
}

#[inline(always)]
fn split(pool: &PoolStats) -> [u64; SPLIT_WORDS] {
    [
        pool.inactive_split.current,
        pool.inactive_split.allocated,
        pool.inactive_split_bytes.current,
        pool.inactive_split_bytes.allocated,
    ]
}

#[inline(always)]
fn store<W: Word, const N: usize>(words: &[W], values: [u64; N]) {
    for (word, value) in words.iter().zip(values) {
        word.put(value);
    }
}

/// Not inlined: rare, and larger than everything else together.
#[cold]
#[inline(never)]
fn store_cold<W: Word>(words: &[W], stats: &DeviceStats) {
    store(words, cold(stats));
}

/// Returns the words of the cold group.
fn cold(stats: &DeviceStats) -> [u64; COLD_WORDS] {
    let mut out = Values::default();
    for pool in [&stats.small, &stats.large] {
        for stat in peaks_of(pool) {
            out.each(&[stat.peak]);
        }
        for stat in [&pool.segment, &pool.reserved_bytes] {
            out.each(&[stat.current, stat.peak, stat.allocated]);
        }
    }
    out.each(&stats.all_peaks);
    out.each(&[
        stats.num_alloc_retries,
        stats.num_ooms,
        stats.num_sync_all_streams,
        stats.num_device_alloc,
        stats.num_device_free,
    ]);
    out.words
}

/// Returns the figures whose peaks are in the cold group while their other parts are not.
fn peaks_of(pool: &PoolStats) -> [&Stat; HOT_STATS + 2] {
    [
        &pool.allocation,
        &pool.active,
        &pool.requested_bytes,
        &pool.allocated_bytes,
        &pool.active_bytes,
        &pool.inactive_split,
        &pool.inactive_split_bytes,
    ]
}

/// Collects words in order. The compiler optimises it to plain stores.
struct Values<const N: usize> {
    words: [u64; N],
    len: usize,
}

impl<const N: usize> Default for Values<N> {
    fn default() -> Self {
        Values { words: [0; N], len: 0 }
    }
}

impl<const N: usize> Values<N> {
    fn each(&mut self, values: &[u64]) {
        for value in values {
            self.words[self.len] = *value;
            self.len += 1;
        }
    }
}
