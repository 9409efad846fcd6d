//! A stand-in for [`crate::lock`]: what that does in the orders that it does it in, without its patience.

use std::cell::{RefCell, RefMut};
use std::ops::{Deref, DerefMut};

use loom::sync::atomic::AtomicBool;

use super::atomic::{Ordering, StandIn, Without, execution, unless};

pub(crate) struct Lock<T> {
    locked: StandIn<AtomicBool>,
    /// Loom's threads are coroutines: what they do between two looks at what they share is never interrupted.
    value: RefCell<(u64, T)>,
}

pub(crate) struct Guard<'a, T> {
    locked: &'a StandIn<AtomicBool>,
    value: Option<RefMut<'a, T>>,
}

/// One that nobody ever may enter: how a thread does that has models of its own, beside that lock.
pub(crate) type Biased<T> = Lock<T>;
pub(crate) type Inside<'a, T> = Guard<'a, T>;

impl<T: Default> Lock<T> {
    pub(crate) fn new(value: T) -> Lock<T> {
        Lock {
            locked: StandIn::new(false),
            value: RefCell::new((0, value)),
        }
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        match self.locked.shared() {
            Some(locked) => {
                let order = unless(Without::Lock, Ordering::Acquire);
                while locked.compare_exchange(false, true, order, Ordering::Relaxed).is_err() {
                    loom::thread::yield_now();
                }
            }
            // One thread's.
            None => {
                self.locked.load(Ordering::Relaxed);
            }
        }
        let mut value = self.value.borrow_mut();
        if value.0 != execution() {
            *value = (execution(), T::default());
        }
        Guard {
            locked: &self.locked,
            value: Some(RefMut::map(value, |(_, value)| value)),
        }
    }
}

impl<T: Default> Biased<T> {
    pub(crate) fn is_mine(&self) -> bool {
        false
    }

    pub(crate) fn enter(&self) -> Option<Inside<'_, T>> {
        None
    }

    pub(crate) fn lock_as_others(&self) -> Option<Inside<'_, T>> {
        Some(self.lock())
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        drop(self.value.take());
        // Where a model fails there is nobody left to be let in.
        if !std::thread::panicking()
            && let Some(locked) = self.locked.shared()
        {
            locked.store(false, unless(Without::Unlock, Ordering::Release));
        }
    }
}

#[allow(clippy::unwrap_used)]
impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().unwrap()
    }
}

#[allow(clippy::unwrap_used)]
impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().unwrap()
    }
}

impl<T> std::fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock")
    }
}
