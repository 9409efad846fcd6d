//! When things happen, at the price of one look at the clock for several operations.
//!
//! A look costs 5 to 9 ns, of some 20 that publishing may cost. So requests that hit the cache in quick succession share one: after
//! a look that came soon after the last, the next [`BLIND`] operations take its time. What that can cost: the first few operations
//! after a pause carry the time before it.

use rustix::time::ClockId;

use crate::identity;

/// Operations between two looks at the clock.
const BLIND: u64 = 3;
/// Nanoseconds between two looks up to which what happened between them need not be told apart: a few ticks of the kernel's.
const SOON: u64 = 20_000_000;
/// Bytes from which on a block is worth a look of its own: so large ones come alone, between long pauses.
const LARGE: u64 = 256 << 20;

/// A writer's idea of the time. It never goes back.
#[derive(Debug)]
pub(crate) struct Stamp {
    now: u64,
    /// The writer's events before the first one that may not go without a look.
    look_at: u64,
}

impl Stamp {
    pub(crate) fn new() -> Stamp {
        Stamp {
            now: tick(),
            look_at: 0,
        }
    }

    /// That of another writer, which counts its own events.
    pub(crate) fn of_other(&self) -> Stamp {
        Stamp {
            now: self.now,
            look_at: 0,
        }
    }

    /// The time of the last look.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// The time for an operation on a block of `size` bytes after so many of the writer's `events`, by a look of its own or not.
    #[inline(always)]
    pub(crate) fn operation(&mut self, size: u64, events: u64) -> u64 {
        if events >= self.look_at || size >= LARGE {
            return self.look(events);
        }
        self.now
    }

    /// What either saw so far was before what either sees from now on.
    pub(crate) fn meet(&mut self, other: &mut Stamp) {
        self.now = self.now.max(other.now);
        other.now = self.now;
    }

    /// Looks at the clock, after so many of the writer's `events`.
    #[cold]
    #[inline(never)]
    pub(crate) fn look(&mut self, events: u64) -> u64 {
        let now = tick().max(self.now);
        let soon = now - self.now <= SOON;
        self.look_at = if soon { events + 1 + BLIND } else { 0 };
        self.now = now;
        now
    }
}

/// The kernel's tick: a few nanoseconds to read, a few milliseconds coarse.
fn tick() -> u64 {
    identity::now(ClockId::MonotonicCoarse)
}
