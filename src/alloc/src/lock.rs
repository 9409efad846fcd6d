//! A lock for nanoseconds.
//!
//! What is done under it on the way to a cached block takes as long as the two atomic operations that a lock of the standard library
//! takes: one to lock, one to unlock and see who waits. This one unlocks with a plain store and keeps no list of who waits; who
//! finds it taken looks again, first at once, then after letting others run, then after sleeping for longer and longer. So a holder
//! that lost its processor, or that waits for the driver, costs nobody a processor.
//!
//! A thread that takes it again and again would leave it open only for moments, which who looks now and then does not meet. So who has
//! waited for long says so while it looks, and nobody takes it meanwhile who has not. Before that it is anybody's: handing it on each time
//! would cost threads that meet there several times as much as what they do under it.

mod asymmetric;
mod biased;
mod patience;
mod seat;
mod seats;
mod shared;
mod visitors;

// What threads meet at, by these names: the ordering tests have a file of these over stand-ins.
use std::sync::atomic;

use atomic::{AtomicU32, Ordering};
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::process;

pub(crate) use biased::{Biased, Inside, OUTER};
use patience::{LONGEST, PATIENT};
pub(crate) use shared::{Held, Shared};
pub(crate) use visitors::Visitors;

/// The value, for who has it.
pub(crate) type Guard<'a, T> = SpinMutexGuard<'a, T>;

/// A value that one thread at a time may use. A panic under it leaves it unlocked and the value as it was.
#[derive(Debug, Default)]
pub(crate) struct Lock<T> {
    /// Threads that come first.
    first: AtomicU32,
    value: SpinMutex<T>,
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Lock<T> {
        Lock {
            first: AtomicU32::new(0),
            value: SpinMutex::new(value),
        }
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        // Nothing depends on when the number is seen: who misses it once sees it the next time.
        if self.first.load(Ordering::Relaxed) == 0
            && let Some(guard) = self.value.try_lock()
        {
            return guard;
        }
        self.wait()
    }

    /// The lock, if it is open: a look that changes nothing comes first, as an attempt takes the cache line away from the holder.
    #[inline(always)]
    fn look(&self) -> Option<Guard<'_, T>> {
        if self.value.is_locked() {
            return None;
        }
        self.value.try_lock()
    }

    /// The same for who has not waited for long.
    #[inline(always)]
    fn look_after_others(&self) -> Option<Guard<'_, T>> {
        let comes_first = self.first.load(Ordering::Relaxed) == 0;
        comes_first.then(|| self.look()).flatten()
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> Guard<'_, T> {
        if let Some(guard) = patience::find(|| self.look_after_others()) {
            return guard;
        }
        loop {
            self.first.fetch_add(1, Ordering::Relaxed);
            let found = (0..PATIENT).find_map(|_| {
                let found = self.look();
                if found.is_none() {
                    std::thread::yield_now();
                }
                found
            });
            self.first.fetch_sub(1, Ordering::Relaxed);
            if let Some(guard) = found {
                return guard;
            }
            // It is held for long: by a thread that does not run, or that waits itself.
            process::sleep(LONGEST);
        }
    }
}

#[cfg(test)]
mod biased_tests;
#[cfg(test)]
mod ordering_tests;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn nothing_is_lost_between_threads_that_keep_it_for_a_while() {
        let counter = Lock::new(0u64);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let counter = &counter;
                scope.spawn(move || {
                    for n in 0..2000 {
                        let mut held = counter.lock();
                        let before = *held;
                        if n % 500 == thread {
                            std::thread::sleep(Duration::from_millis(2));
                        }
                        *held = before + 1;
                    }
                });
            }
        });
        assert_eq!(*counter.lock(), 8000);
    }

    /// By how many holders a thread is overtaken that waits, while another one takes the lock again as soon as it has let go of it.
    #[test]
    fn who_waits_comes_before_who_takes_it_again_and_again() {
        let (lock, holders, done) = (Lock::new(()), AtomicU32::new(0), AtomicBool::new(false));
        let mut overtaken: Vec<u32> = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _held = lock.lock();
                    holders.fetch_add(1, Ordering::Relaxed);
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_micros(20) {}
                }
            });
            let waits = (0..99).map(|_| {
                std::thread::sleep(Duration::from_millis(1));
                let before = holders.load(Ordering::Relaxed);
                drop(lock.lock());
                holders.load(Ordering::Relaxed) - before
            });
            let overtaken = waits.collect();
            done.store(true, Ordering::Relaxed);
            overtaken
        });
        overtaken.sort_unstable();
        // Dozens where the processors are busy with others; tens of thousands where who waits only looks.
        assert!(overtaken[49] <= 1000, "{overtaken:?}");
    }

    #[test]
    fn a_panic_under_it_leaves_it_open() {
        let lock = Lock::new(1);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = lock.lock();
            std::panic::resume_unwind(Box::new("in the middle"));
        }));
        assert!(outcome.is_err());
        assert_eq!(*lock.lock(), 1);
    }
}
