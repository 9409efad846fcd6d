//! A lock for nanoseconds.
//!
//! What is done under it on the way to a cached block takes as long as the two atomic operations that a lock of the standard library
//! takes: one to lock, one to unlock and see who waits. This one unlocks with a plain store and keeps no list of who waits; who
//! finds it taken looks again, first at once, then after letting others run, then after sleeping for longer and longer. So a holder
//! that lost its processor, or that waits for the driver, costs nobody a processor.

use std::time::Duration;

use spin::mutex::{SpinMutex, SpinMutexGuard};

/// Looks at once, then looks that let others run in between.
const EAGER: u32 = 64;
const PATIENT: u32 = EAGER + 32;
/// Sleeps between looks after that: doubled up to the longest.
const SLEEP: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

/// A value that one thread at a time may use. A panic under it leaves it unlocked and the value as it was.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(SpinMutex<T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Lock<T> {
        Lock(SpinMutex::new(value))
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> SpinMutexGuard<'_, T> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> SpinMutexGuard<'_, T> {
        let mut sleep = SLEEP;
        let mut attempt = 0u32;
        loop {
            // A look that changes nothing first: an attempt takes the cache line away from the holder.
            if !self.0.is_locked()
                && let Some(guard) = self.0.try_lock()
            {
                return guard;
            }
            attempt = attempt.saturating_add(1);
            match attempt {
                0..EAGER => std::hint::spin_loop(),
                EAGER..PATIENT => std::thread::yield_now(),
                _ => {
                    std::thread::sleep(sleep);
                    sleep = (sleep * 2).min(LONGEST);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
