//! Reads figures from cells.

use super::lanes::FIGURES as LANE_FIGURES;
use super::{COLD, EVENTS, LARGE, LARGE_SPLIT, SMALL, SMALL_SPLIT};
use crate::format::words::{LANE_CELL, STATS_CELL};
use crate::seqlock;
use crate::stats::{DeviceStats, PoolStats};
use crate::word::Word;

/// One complete set of figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The figures of the device.
    pub(crate) stats: DeviceStats,
    /// Events published before them.
    pub(crate) events: u64,
    /// Sequence number. It grows with every set, so that a reader never goes back.
    pub(crate) seq: u64,
}

/// Decodes the words of a cell after its sequence word.
pub(crate) type Decode<const N: usize> = fn(&[u64; N]) -> DeviceStats;

/// Reads the newest complete figures of two cells, each of a sequence word and `N` more words. Returns `None` if
/// neither could be read, or nothing was published yet.
pub(crate) fn read<W: Word, const N: usize>(cells: &[W], decode: Decode<N>) -> Option<Cell> {
    let mut words = [0; N];
    let never_written = cells[0].get() == 0 && cells[1 + N].get() == 0;
    let attempts = if never_written { 0 } else { seqlock::ATTEMPTS };
    for _ in 0..attempts {
        if let Some(seq) = try_read(cells, 1 + N, &mut words) {
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

/// Copies words 1.. of the newer of two cells of `stride` words, or of the other if that fails: the writer is in at
/// most one of them. Returns the sequence number of the copy.
pub(crate) fn try_read<W: Word>(cells: &[W], stride: usize, out: &mut [u64]) -> Option<u64> {
    let newest = if newer(cells[stride].get(), cells[0].get()) {
        [stride, 0]
    } else {
        [0, stride]
    };
    // A sequence number of 0 means that the cell was never written.
    newest
        .into_iter()
        .find_map(|start| seqlock::try_read(&cells[start..start + stride], out).filter(|&seq| seq != 0))
}

/// Whether to try a cell with sequence number `a` before one with `b`: complete cells first, then the later one.
fn newer(a: u64, b: u64) -> bool {
    (a & 1 == 0, a) > (b & 1 == 0, b)
}

/// Reads like [`read`], but from three successive copies of both cells: a cell with the same sequence number in the
/// first and the last copy was not written while the middle copy was made.
pub(crate) fn read_copies<const N: usize>(copies: [&[u64]; 3], decode: Decode<N>) -> Option<Cell> {
    let stable = |start: &usize| {
        let (before, after) = (copies[0][*start], copies[2][*start]);
        before == after && before & 1 == 0 && before != 0
    };
    let start = [0, 1 + N]
        .into_iter()
        .filter(stable)
        .max_by_key(|start| copies[0][*start])?;
    let mut words = [0; N];
    words.copy_from_slice(&copies[1][start + 1..][..N]);
    Some(Cell {
        stats: decode(&words),
        events: words[EVENTS - 1],
        seq: copies[0][start],
    })
}

/// Decodes words 1.. of a publisher's cell.
pub(crate) fn of_publisher(words: &[u64; STATS_CELL - 1]) -> DeviceStats {
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

/// The reverse of [`super::hot`].
fn load_hot(words: &[u64], pool: &mut PoolStats) {
    (pool.allocation.current, pool.allocation.allocated) = (words[0], words[1]);
    (pool.active.current, pool.active.allocated) = (words[2], words[1]);
    (pool.requested_bytes.current, pool.requested_bytes.allocated) = (words[3], words[4]);
    (pool.allocated_bytes.current, pool.allocated_bytes.allocated) = (words[5], words[6]);
    (pool.active_bytes.current, pool.active_bytes.allocated) = (words[7], words[6]);
}

/// The reverse of [`super::split`].
fn load_split(words: &[u64], pool: &mut PoolStats) {
    (pool.inactive_split.current, pool.inactive_split.allocated) = (words[0], words[1]);
    (pool.inactive_split_bytes.current, pool.inactive_split_bytes.allocated) = (words[2], words[3]);
}

/// Decodes words 1.. of a lane's cell into what the lane adds to its device's figures. Its blocks are active as long as
/// they are allocated.
pub(crate) fn of_lane(words: &[u64; LANE_CELL - 1]) -> DeviceStats {
    let mut part = DeviceStats::default();
    let mut from = words[LANE_FIGURES - 1..].iter().copied();
    let mut next = || from.next().unwrap_or(0);
    for pool in [&mut part.small, &mut part.large] {
        for stat in [
            &mut pool.allocation,
            &mut pool.requested_bytes,
            &mut pool.allocated_bytes,
            &mut pool.inactive_split,
            &mut pool.inactive_split_bytes,
        ] {
            (stat.current, stat.allocated) = (next(), next());
        }
        (pool.active, pool.active_bytes) = (pool.allocation, pool.allocated_bytes);
    }
    part
}
