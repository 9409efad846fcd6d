//! Sums of figures: a cell plus the events since then, and the publisher's part plus the parts of the lanes.

use crate::record::{Event, EventKind, PoolId};
use crate::stats::{DeviceStats, LaneFigures, LanePool, LaneStat, PoolStats, Stat};

/// Adds the effect of a marked event to the figures, peaks included.
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

/// Adds the part of a device's figures that a lane counts. The caller must call [`settle`] after the last part.
pub(crate) fn add(stats: &mut DeviceStats, part: &DeviceStats) {
    for (pool, part) in [(&mut stats.small, &part.small), (&mut stats.large, &part.large)] {
        for (stat, part) in pool.figures_mut().into_iter().zip(part.figures()) {
            stat.current = stat.current.wrapping_add(part.current);
            stat.allocated = stat.allocated.wrapping_add(part.allocated);
        }
    }
}

/// Finishes a sum of parts that may be of different moments. The publisher raises a peak before the sum exceeds it, so
/// a peak below the sum is outdated, and is raised to the sum. A block that left one part and is not yet counted in the
/// other may make a sum negative; that becomes zero.
pub(crate) fn settle(stats: &mut DeviceStats) {
    for pool in [&mut stats.small, &mut stats.large] {
        for stat in pool.figures_mut() {
            if stat.current > i64::MAX as u64 {
                stat.current = 0;
            }
            stat.peak = stat.peak.max(stat.current);
        }
    }
    let all = stats.all();
    for (peak, stat) in stats.all_peaks.iter_mut().zip(all.figures()) {
        *peak = (*peak).max(stat.current);
    }
}

/// Corrects a sum after [`settle`] if its parts are known to be of different moments. No figure and no peak can exceed
/// the sum of all increases: more means that two parts count the same block, or that a lane made a peak after it was
/// read.
pub(crate) fn reconcile(stats: &mut DeviceStats) {
    for pool in [&mut stats.small, &mut stats.large] {
        for stat in pool.figures_mut() {
            stat.current = stat.current.min(stat.allocated);
            stat.peak = stat.peak.min(stat.allocated);
        }
    }
    let all = stats.all();
    for (peak, stat) in stats.all_peaks.iter_mut().zip(all.figures()) {
        *peak = (*peak).min(stat.allocated);
    }
}

/// Converts a lane's part of its device's figures into the figures of its pools.
pub(crate) fn figures_of(part: &DeviceStats) -> LaneFigures {
    let stat = |stat: &Stat| LaneStat {
        current: stat.current,
        allocated: stat.allocated,
    };
    let pool = |pool: &PoolStats| LanePool {
        allocation: stat(&pool.allocation),
        requested_bytes: stat(&pool.requested_bytes),
        allocated_bytes: stat(&pool.allocated_bytes),
        inactive_split: stat(&pool.inactive_split),
        inactive_split_bytes: stat(&pool.inactive_split_bytes),
    };
    LaneFigures {
        small: pool(&part.small),
        large: pool(&part.large),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::POOL_STATS;

    #[test]
    fn parts_of_two_moments_are_reconciled() {
        let mut stats = DeviceStats::default();
        let before = |current, allocated, peak| Stat {
            current,
            allocated,
            peak,
        };
        // A peak that a lane made after it was read; a block that both parts count; a block that neither counts.
        stats.small.allocation = before(5, 7, 9);
        stats.small.active = before(8, 7, 8);
        stats.large.requested_bytes = before(0u64.wrapping_sub(512), 1024, 512);
        stats.all_peaks = [20; POOL_STATS];
        settle(&mut stats);
        reconcile(&mut stats);
        assert_eq!(stats.small.allocation, before(5, 7, 7));
        assert_eq!(stats.small.active, before(7, 7, 7));
        assert_eq!(stats.large.requested_bytes, before(0, 1024, 512));
        assert_eq!((stats.all_peaks[0], stats.all_peaks[1], stats.all_peaks[2]), (7, 7, 20));
    }
}
