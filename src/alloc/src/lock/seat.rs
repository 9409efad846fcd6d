//! Where a thread says which lock it is inside of: a place that is its own, and that others may look at whenever they do, also after it has
//! ended.

use super::atomic::{AtomicUsize, Ordering};

/// No lock.
pub(super) const OUTSIDE: usize = 0;

/// One thread's place, on cache lines of its own, as processors fetch two at a time.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Seat {
    pub(super) inside: AtomicUsize,
}

impl Seat {
    /// What tells it from others.
    #[inline(always)]
    pub(super) fn number(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Whether its thread, which asks, is outside of every lock.
    #[inline(always)]
    pub(super) fn is_outside(&self) -> bool {
        self.inside.load(Ordering::Relaxed) == OUTSIDE
    }

    /// Its thread is about to be inside of a lock.
    #[inline(always)]
    pub(super) fn enter(&self, lock: usize) {
        self.inside.store(lock, Ordering::Relaxed);
    }

    /// Its thread is out; who [sees](Seat::has_left) that also sees what it did inside.
    #[inline(always)]
    pub(super) fn leave(&self) {
        self.inside.store(OUTSIDE, Ordering::Release);
    }

    /// Whether its thread is out of a lock.
    pub(super) fn has_left(&self, lock: usize) -> bool {
        self.inside.load(Ordering::Acquire) != lock
    }
}
