//! A device's figures in two alternating cells, so that one of them is complete whenever the writer is stopped.
//!
//! Every write goes to the cell that was not written last. A cell must then receive what changed now and what changed the time
//! before (which went to the other cell). What changes is tracked in groups, so that a request that hits the cache stores a dozen
//! words, and not all seventy.
//!
//! Most requests change nothing but counts that their events tell anyway. So only every sixteenth of them writes a cell, and a
//! reader adds to the newest cell's figures what the events since say ([`follow`]). An event that says so is marked; the first
//! one that is not ends it, and is followed by a cell.

use crate::layout::words::{STATS, STATS_CELL};
use crate::record::{Event, EventKind, PoolId};
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
    /// `current` and `allocated` of the small pool's inactive splits and their bytes.
    pub const SMALL_SPLIT: Touched = Touched(4);
    /// The same of the large pool.
    pub const LARGE_SPLIT: Touched = Touched(8);
    /// Anything else: peaks, segments, reserved bytes, scalars.
    pub const COLD: Touched = Touched(16);
    /// Everything.
    pub const ALL: Touched = Touched(31);

    /// Both groups.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, other: Touched) -> Touched {
        Touched(self.0 | other.0)
    }

    /// Whether any of these groups is among them.
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

/// Operations whose figures may be left to their events before a cell is written again. The smallest ring holds them, and what a
/// reader has to read for it is one kilobyte.
const LEFT_TO_EVENTS: u32 = 15;

/// The writer's private half: which cell is next, and what each cell still lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellWriter {
    ticket: u64,
    lacks: [Touched; 2],
    /// Operations that may still be left to their events, unless there was another event since `others`.
    left: u32,
    others: u64,
}

impl Default for CellWriter {
    fn default() -> Self {
        CellWriter {
            ticket: 0,
            lacks: [Touched::ALL; 2],
            left: 0,
            others: 0,
        }
    }
}

impl CellWriter {
    /// Whether the figures that an operation changes may be left to its event: a reader adds it to the newest cell's figures by
    /// itself. `others` counts the events of which that is not so.
    #[inline(always)]
    pub(crate) fn leaves(&mut self, others: u64) -> bool {
        if self.left == 0 || self.others != others {
            return false;
        }
        self.left -= 1;
        true
    }

    /// Publishes `stats` into one of the two `cells` of a device, as they are after so many `events` and `others`.
    #[inline(always)]
    pub(crate) fn write<W: Word>(
        &mut self,
        cells: &[W; STATS],
        stats: &DeviceStats,
        touched: Touched,
        (events, others): (u64, u64),
    ) {
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
        (self.left, self.others) = (LEFT_TO_EVENTS, others);
    }
}

/// Adds to figures what an event does whose figures follow from it, peaks included.
pub(crate) fn follow(stats: &mut DeviceStats, event: &Event) {
    let pool = match event.pool {
        PoolId::SMALL => &mut stats.small,
        _ => &mut stats.large,
    };
    let (size, requested) = (event.size, event.requested);
    let change = |stat: &mut Stat, n: u64, more: bool| {
        if more {
            stat.current = stat.current.wrapping_add(n);
            stat.allocated = stat.allocated.wrapping_add(n);
            stat.peak = stat.peak.max(stat.current);
        } else {
            stat.sub(n);
        }
    };
    let held = event.kind == EventKind::Alloc;
    if held || event.kind == EventKind::Free {
        change(&mut pool.allocation, 1, held);
        change(&mut pool.allocated_bytes, size, held);
    }
    change(&mut pool.active, 1, held);
    change(&mut pool.active_bytes, size, held);
    change(&mut pool.requested_bytes, requested, held);
    if let Some(pool) = event.split {
        let pool = match pool {
            PoolId::SMALL => &mut stats.small,
            _ => &mut stats.large,
        };
        change(&mut pool.inactive_split, 1, !held);
        change(&mut pool.inactive_split_bytes, size, !held);
    }
    let all = stats.all();
    for (peak, stat) in stats.all_peaks.iter_mut().zip(all.figures()) {
        *peak = (*peak).max(stat.current);
    }
}

/// A pool's figures that every request changes. The sums of `active` are those of `allocation` and of the allocated bytes: a
/// block becomes both at once.
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

/// Out of line: rare, and larger than everything else together.
#[cold]
#[inline(never)]
fn store_cold<W: Word>(words: &[W], stats: &DeviceStats) {
    store(words, cold(stats));
}

/// The words of the cold group.
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

/// The figures whose peaks lie in the cold group while the rest of them does not.
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

/// Collects words in order; the compiler sees through it to plain stores.
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
    let mut cold = words[COLD - 1..].iter().copied();
    let mut next = || cold.next().unwrap_or(0);
    let pools = [
        (&mut stats.small, SMALL, SMALL_SPLIT),
        (&mut stats.large, LARGE, LARGE_SPLIT),
    ];
    for (pool, hot, split) in pools {
        load_hot(&words[hot - 1..], pool);
        load_split(&words[split - 1..], pool);
        for stat in [
            &mut pool.allocation,
            &mut pool.active,
            &mut pool.requested_bytes,
            &mut pool.allocated_bytes,
            &mut pool.active_bytes,
            &mut pool.inactive_split,
            &mut pool.inactive_split_bytes,
        ] {
            stat.peak = next();
        }
        for stat in [&mut pool.segment, &mut pool.reserved_bytes] {
            (stat.current, stat.peak, stat.allocated) = (next(), next(), next());
        }
    }
    stats.all_peaks.fill_with(&mut next);
    for scalar in [
        &mut stats.num_alloc_retries,
        &mut stats.num_ooms,
        &mut stats.num_sync_all_streams,
        &mut stats.num_device_alloc,
        &mut stats.num_device_free,
    ] {
        *scalar = next();
    }
    stats
}

/// The reverse of [`hot`].
fn load_hot(words: &[u64], pool: &mut PoolStats) {
    (pool.allocation.current, pool.allocation.allocated) = (words[0], words[1]);
    (pool.active.current, pool.active.allocated) = (words[2], words[1]);
    (pool.requested_bytes.current, pool.requested_bytes.allocated) = (words[3], words[4]);
    (pool.allocated_bytes.current, pool.allocated_bytes.allocated) = (words[5], words[6]);
    (pool.active_bytes.current, pool.active_bytes.allocated) = (words[7], words[6]);
}

/// The reverse of [`split`].
fn load_split(words: &[u64], pool: &mut PoolStats) {
    (pool.inactive_split.current, pool.inactive_split.allocated) = (words[0], words[1]);
    (pool.inactive_split_bytes.current, pool.inactive_split_bytes.allocated) = (words[2], words[3]);
}
