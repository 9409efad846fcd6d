//! What the whole process has one of, in forked children too: there a lock may be held for ever, by a thread of the parent's.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use gpumem_channel::Process;

/// How often a forked child looks where nobody has said who holds it: for a millisecond or so. That is so for moments only, but a fork may
/// come in one of them.
const LOOKS: u32 = 1000;

/// A value that one thread at a time may use. It knows the process that holds it.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    /// [`Process::number`]; 0 where nobody does.
    holder: AtomicU64,
    value: Mutex<T>,
}

/// The value, for who has it.
pub(crate) struct Held<'a, T> {
    holder: &'a AtomicU64,
    value: MutexGuard<'a, T>,
}

impl<T> Shared<T> {
    pub(crate) const fn new(value: T) -> Shared<T> {
        Shared {
            holder: AtomicU64::new(0),
            value: Mutex::new(value),
        }
    }

    /// The value. None in a forked child where one of its parent's threads had it.
    pub(crate) fn lock(&self) -> Option<Held<'_, T>> {
        let process = Process::current();
        let value = match process.is_forked() {
            false => self.value.lock().unwrap_or_else(PoisonError::into_inner),
            true => self.lock_in_child(process)?,
        };
        self.holder.store(process.number(), Ordering::Relaxed);
        Some(Held {
            holder: &self.holder,
            value,
        })
    }

    #[cold]
    fn lock_in_child(&self, process: Process) -> Option<MutexGuard<'_, T>> {
        for _ in 0..LOOKS {
            match self.value.try_lock() {
                Ok(value) => return Some(value),
                Err(TryLockError::Poisoned(value)) => return Some(value.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            match self.holder.load(Ordering::Relaxed) {
                0 => std::thread::yield_now(),
                holder if holder == process.number() => {
                    return Some(self.value.lock().unwrap_or_else(PoisonError::into_inner));
                }
                _ => return None,
            }
        }
        None
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.holder.store(0, Ordering::Relaxed);
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
