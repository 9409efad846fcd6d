//! When things happen, at the price of one look at the clock for several operations.
//!
//! A look costs 5 to 9 ns, of some 20 that publishing may cost. So requests that hit the cache in quick succession share one: after
//! a look that came soon after the last, the next [`BLIND`] operations take its time. What that can cost: the first few operations
//! after a pause carry the time before it.

use rustix::time::ClockId;

use crate::identity;

/// Operations between two looks at the clock.
const BLIND: u32 = 3;
/// Nanoseconds between two looks up to which what happened between them need not be told apart: a few ticks of the kernel's.
const SOON: u64 = 20_000_000;
/// Bytes from which on a block is worth a look of its own: so large ones come alone, between long pauses.
const LARGE: u64 = 256 << 20;

/// A writer's idea of the time. It never goes back.
#[derive(Clone, Debug)]
pub(crate) struct Stamp {
    now: u64,
    /// Operations that may go without a look before the next, if any.
    allowed: u32,
    /// Bytes of a block from which on its operation looks: 0 when none may go without.
    looks_from: u64,
}

impl Stamp {
    pub(crate) fn new() -> Stamp {
        Stamp {
            now: tick(),
            allowed: 0,
            looks_from: 0,
        }
    }

    /// The time of the last look.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// The time for an operation on a block of `size` bytes, by a look of its own or not.
    #[inline(always)]
    pub(crate) fn operation(&mut self, size: u64) -> u64 {
        if size >= self.looks_from {
            return self.look();
        }
        self.allowed -= 1;
        // The same number of times each: a branch here would be one more to guess.
        self.looks_from *= u64::from(self.allowed != 0);
        self.now
    }

    /// What either saw so far was before what either sees from now on.
    pub(crate) fn meet(&mut self, other: &mut Stamp) {
        self.now = self.now.max(other.now);
        other.now = self.now;
    }

    /// Looks at the clock.
    #[cold]
    #[inline(never)]
    pub(crate) fn look(&mut self) -> u64 {
        let now = tick().max(self.now);
        let soon = now - self.now <= SOON;
        (self.allowed, self.looks_from) = if soon { (BLIND, LARGE) } else { (0, 0) };
        self.now = now;
        now
    }
}

/// The kernel's tick: a few nanoseconds to read, a few milliseconds coarse.
fn tick() -> u64 {
    identity::now(ClockId::MonotonicCoarse)
}
