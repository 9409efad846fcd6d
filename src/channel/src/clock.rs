//! The time of events, with one clock reading for several operations.
//!
//! A reading costs 5 to 9 ns, of about 20 ns that publishing may cost. So requests that hit the cache in quick
//! succession share one: if a reading came soon after the previous one, the next [`REUSES`] operations reuse it. The
//! drawback: the first few operations after a pause may have the time before it.

use rustix::time::ClockId;

use crate::identity;

/// Number of operations that reuse a clock reading.
const REUSES: u64 = 3;
/// Nanoseconds between two readings up to which the second one may be reused: a few of the kernel's ticks.
const SOON: u64 = 20_000_000;
/// Size in bytes from which a block always gets its own reading: such blocks come alone, between long pauses.
const LARGE: u64 = 256 << 20;

/// The clock of a writer. It never goes back.
#[derive(Debug)]
pub(crate) struct Clock {
    now: u64,
    /// Number of the first event that must read the clock.
    next_reading: u64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock {
            now: tick(),
            next_reading: 0,
        }
    }

    /// Makes the clock of another writer, which counts its own events.
    pub(crate) fn of_other(&self) -> Clock {
        Clock {
            now: self.now,
            next_reading: 0,
        }
    }

    /// Returns the last reading.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Returns the time of an operation on a block of `size` bytes, after `events` of the writer's events: a new
    /// reading or the last one.
    #[inline(always)]
    pub(crate) fn operation(&mut self, size: u64, events: u64) -> u64 {
        if events >= self.next_reading || size >= LARGE {
            return self.read(events);
        }
        self.now
    }

    /// Advances both clocks to the later of the two, so that later times of either are not before earlier times of the
    /// other.
    pub(crate) fn meet(&mut self, other: &mut Clock) {
        self.now = self.now.max(other.now);
        other.now = self.now;
    }

    /// Reads the clock, after `events` of the writer's events.
    #[cold]
    #[inline(never)]
    pub(crate) fn read(&mut self, events: u64) -> u64 {
        let now = tick().max(self.now);
        let soon = now - self.now <= SOON;
        self.next_reading = if soon { events + 1 + REUSES } else { 0 };
        self.now = now;
        now
    }
}

/// Reads the kernel's tick, which takes a few nanoseconds and has a resolution of a few milliseconds.
fn tick() -> u64 {
    identity::now(ClockId::MonotonicCoarse)
}
