//! The only place that reads the clocks.

use rustix::time::{ClockId, clock_gettime};

use crate::model::Nanos;

/// Returns `CLOCK_MONOTONIC`, the clock of blocks and events in channels.
pub(crate) fn now() -> Nanos {
    nanos(ClockId::Monotonic).clamp(0, i128::from(u64::MAX)) as Nanos
}

/// Returns `CLOCK_REALTIME - CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn realtime_offset() -> i128 {
    nanos(ClockId::Realtime) - nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> i128 {
    let time = clock_gettime(clock);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}
