//! A device's figures in two alternating cells, so that one of them is complete whenever the writer is stopped.
//!
//! Every write goes to the cell that was not written last. A cell must then receive what changed now and what changed the time
//! before (which went to the other cell). What changes is tracked in groups, so that a request that hits the cache stores a dozen
//! words, or two dozen if it splits a block, and not all seventy.

use crate::layout::words::STATS_CELL;
use crate::seqlock;
use crate::stats::{DeviceStats, HOT_STATS, POOL_STATS, PoolStats, Stat};
use crate::word::Word;

/// Which groups of a device's figures changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched(u8);

impl Touched {
    /// `current` and `allocated` of the small pool's allocation, active, requested, allocated and active bytes.
    pub const SMALL: Touched = Touched(1);
    /// The same of the large pool.
    pub const LARGE: Touched = Touched(2);
    /// Inactive splits and their bytes, of both pools.
    pub const SPLIT: Touched = Touched(4);
    /// Anything else: peaks of the hot figures, segments, reserved bytes, scalars.
    pub const COLD: Touched = Touched(8);
    /// Everything.
    pub const ALL: Touched = Touched(15);

    /// Both groups.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, other: Touched) -> Touched {
        Touched(self.0 | other.0)
    }

    #[inline(always)]
    fn has(self, group: Touched) -> bool {
        self.0 & group.0 != 0
    }
}

// Words of a cell: 0 sequence, 1 events published before it, then the groups.
const EVENTS: usize = 1;
const SMALL: usize = 2;
const HOT_WORDS: usize = 2 * HOT_STATS;
const LARGE: usize = SMALL + HOT_WORDS;
const SPLIT: usize = LARGE + HOT_WORDS;
const SPLIT_WORDS: usize = 2 * 2 * 3 + 2;
const COLD: usize = SPLIT + SPLIT_WORDS;
const COLD_WORDS: usize = 2 * (HOT_STATS + 2 * 3) + (POOL_STATS - 2) + 5;
const _: () = assert!(COLD + COLD_WORDS <= STATS_CELL);

/// The writer's private half: which cell is next, and what each cell still lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellWriter {
    ticket: u64,
    lacks: [Touched; 2],
}

impl Default for CellWriter {
    fn default() -> Self {
        CellWriter {
            ticket: 0,
            lacks: [Touched::ALL; 2],
        }
    }
}

impl CellWriter {
    /// Publishes `stats` into `cells` (both, one after the other). `events` is the number of events published so far.
    #[inline(always)]
    pub(crate) fn write<W: Word>(&mut self, cells: &[W], stats: &DeviceStats, touched: Touched, events: u64) {
        let turn = (self.ticket & 1) as usize;
        self.lacks[turn ^ 1] = self.lacks[turn ^ 1].and(touched);
        let touched = std::mem::take(&mut self.lacks[turn]).and(touched);
        let cell = &cells[turn * STATS_CELL..][..STATS_CELL];
        seqlock::begin(cell, self.ticket);
        cell[EVENTS].put(events);
        if touched.has(Touched::SMALL) {
            store_hot(&cell[SMALL..][..HOT_WORDS], &stats.small);
        }
        if touched.has(Touched::LARGE) {
            store_hot(&cell[LARGE..][..HOT_WORDS], &stats.large);
        }
        if touched.has(Touched::SPLIT) {
            store(&cell[SPLIT..][..SPLIT_WORDS], split(stats));
        }
        if touched.has(Touched::COLD) {
            store(&cell[COLD..][..COLD_WORDS], cold(stats));
        }
        seqlock::end(cell, self.ticket);
        self.ticket += 1;
    }
}

#[inline(always)]
fn store_hot<W: Word>(words: &[W], pool: &PoolStats) {
    let array = pool.array();
    for (pair, stat) in words.chunks_exact(2).zip(&array[..HOT_STATS]) {
        pair[0].put(stat.current);
        pair[1].put(stat.allocated);
    }
}

#[inline(always)]
fn store<W: Word, const N: usize>(words: &[W], values: [u64; N]) {
    for (word, value) in words.iter().zip(values) {
        word.put(value);
    }
}

/// The words of the split group.
#[inline(always)]
fn split(stats: &DeviceStats) -> [u64; SPLIT_WORDS] {
    let mut out = Values::default();
    for pool in [&stats.small, &stats.large] {
        out.stat(&pool.inactive_split);
        out.stat(&pool.inactive_split_bytes);
    }
    out.each(&stats.all_peaks[POOL_STATS - 2..]);
    out.words
}

/// The words of the cold group.
#[inline(always)]
fn cold(stats: &DeviceStats) -> [u64; COLD_WORDS] {
    let mut out = Values::default();
    for pool in [&stats.small, &stats.large] {
        for stat in &pool.array()[..HOT_STATS] {
            out.each(&[stat.peak]);
        }
        out.stat(&pool.segment);
        out.stat(&pool.reserved_bytes);
    }
    out.each(&stats.all_peaks[..POOL_STATS - 2]);
    out.each(&[
        stats.num_alloc_retries,
        stats.num_ooms,
        stats.num_sync_all_streams,
        stats.num_device_alloc,
        stats.num_device_free,
    ]);
    out.words
}

/// Collects words in order; the compiler sees through it to plain stores.
struct Values<const N: usize> {
    words: [u64; N],
    len: usize,
}

impl<const N: usize> Default for Values<N> {
    #[inline(always)]
    fn default() -> Self {
        Values { words: [0; N], len: 0 }
    }
}

impl<const N: usize> Values<N> {
    #[inline(always)]
    fn stat(&mut self, stat: &Stat) {
        self.each(&[stat.current, stat.peak, stat.allocated]);
    }

    #[inline(always)]
    fn each(&mut self, values: &[u64]) {
        for value in values {
            self.words[self.len] = *value;
            self.len += 1;
        }
    }
}

/// One complete set of figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The figures.
    pub(crate) stats: DeviceStats,
    /// Events published before them.
    pub(crate) events: u64,
    /// Grows with every set, so that a reader can refuse to go back.
    pub(crate) seq: u64,
}

/// The newest complete figures of both cells. `None` if neither could be read, or nothing was published yet.
pub(crate) fn read<W: Word>(cells: &[W]) -> Option<Cell> {
    let mut words = [0; STATS_CELL - 1];
    for _ in 0..seqlock::ATTEMPTS {
        if let Some(seq) = try_read(cells, STATS_CELL, &mut words) {
            return Some(Cell {
                stats: decode(&words),
                events: words[EVENTS - 1],
                seq,
            });
        }
        std::hint::spin_loop();
    }
    None
}

/// Copies words 1.. of the newer of two cells of `stride` words, or else of the other: the writer is in at most one of them.
/// Returns the copy's sequence number.
pub(crate) fn try_read<W: Word>(cells: &[W], stride: usize, out: &mut [u64]) -> Option<u64> {
    let newest = if newer(cells[stride].get(), cells[0].get()) {
        [stride, 0]
    } else {
        [0, stride]
    };
    // A sequence number of 0 is a cell that was never written.
    newest
        .into_iter()
        .find_map(|start| seqlock::try_read(&cells[start..start + stride], out).filter(|&seq| seq != 0))
}

/// Whether a cell with sequence `a` is the better first guess than one with `b`: complete ones first, then the later.
fn newer(a: u64, b: u64) -> bool {
    (a & 1 == 0, a) > (b & 1 == 0, b)
}

/// [`read`] from three copies of both cells made one after the other: a cell whose sequence number is the same in the first and
/// the last was not written while the middle copy was made.
pub(crate) fn read_copies(copies: [&[u64]; 3]) -> Option<Cell> {
    let stable = |start: &usize| {
        let (before, after) = (copies[0][*start], copies[2][*start]);
        before == after && before & 1 == 0 && before != 0
    };
    let start = [0, STATS_CELL]
        .into_iter()
        .filter(stable)
        .max_by_key(|start| copies[0][*start])?;
    let mut words = [0; STATS_CELL - 1];
    words.copy_from_slice(&copies[1][start + 1..][..STATS_CELL - 1]);
    Some(Cell {
        stats: decode(&words),
        events: words[EVENTS - 1],
        seq: copies[0][start],
    })
}

/// Figures from words 1.. of a cell.
fn decode(words: &[u64; STATS_CELL - 1]) -> DeviceStats {
    let mut stats = DeviceStats::default();
    load_hot(&words[SMALL - 1..], &mut stats.small);
    load_hot(&words[LARGE - 1..], &mut stats.large);
    let mut split = words[SPLIT - 1..].iter().copied();
    let mut cold = words[COLD - 1..].iter().copied();
    for pool in [&mut stats.small, &mut stats.large] {
        load_stat(&mut split, &mut pool.inactive_split);
        load_stat(&mut split, &mut pool.inactive_split_bytes);
        for stat in &mut pool.array_mut()[..HOT_STATS] {
            stat.peak = cold.next().unwrap_or(0);
        }
        load_stat(&mut cold, &mut pool.segment);
        load_stat(&mut cold, &mut pool.reserved_bytes);
    }
    let (rest, splits) = stats.all_peaks.split_at_mut(POOL_STATS - 2);
    splits.fill_with(|| split.next().unwrap_or(0));
    rest.fill_with(|| cold.next().unwrap_or(0));
    for scalar in [
        &mut stats.num_alloc_retries,
        &mut stats.num_ooms,
        &mut stats.num_sync_all_streams,
        &mut stats.num_device_alloc,
        &mut stats.num_device_free,
    ] {
        *scalar = cold.next().unwrap_or(0);
    }
    stats
}

fn load_hot(words: &[u64], pool: &mut PoolStats) {
    for (stat, pair) in pool.array_mut().into_iter().zip(words.chunks_exact(2)).take(HOT_STATS) {
        stat.current = pair[0];
        stat.allocated = pair[1];
    }
}

fn load_stat(words: &mut impl Iterator<Item = u64>, stat: &mut Stat) {
    let mut next = || words.next().unwrap_or(0);
    *stat = Stat {
        current: next(),
        peak: next(),
        allocated: next(),
    };
}
