//! Where a thread says which locks it is inside of: a place that is its own, and that others may look at whenever they do, also after it has
//! ended.

use super::atomic::{AtomicUsize, Ordering};

/// No lock.
pub(super) const OUTSIDE: usize = 0;

/// Locks that a thread may be inside of at the same time: one of each floor.
pub(super) const FLOORS: usize = 2;

/// One thread's place, on cache lines of its own, as processors fetch two at a time.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Seat {
    pub(super) inside: [AtomicUsize; FLOORS],
}

impl Seat {
    /// What tells it from others.
    #[inline(always)]
    pub(super) fn number(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Whether its thread, which asks, is outside of every lock of a floor.
    #[inline(always)]
    pub(super) fn is_outside(&self, floor: usize) -> bool {
        self.inside[floor].load(Ordering::Relaxed) == OUTSIDE
    }

    /// Its thread is about to be inside of a lock. Who waits for it to be out of another one may see this only, and then also
    /// [sees](Seat::has_left) what it did there.
    #[inline(always)]
    pub(super) fn enter(&self, floor: usize, lock: usize) {
        self.inside[floor].store(lock, Ordering::Release);
    }

    /// Its thread is out; who [sees](Seat::has_left) that also sees what it did inside.
    #[inline(always)]
    pub(super) fn leave(&self, floor: usize) {
        self.inside[floor].store(OUTSIDE, Ordering::Release);
    }

    /// Whether its thread is out of a lock.
    pub(super) fn has_left(&self, floor: usize, lock: usize) -> bool {
        self.inside[floor].load(Ordering::Acquire) != lock
    }
}
