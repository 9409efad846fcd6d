//! A lock that threads get in the order in which they asked for it.
//!
//! One of the standard library's goes to who runs when it opens, which is the thread that had it: the others wait for seconds while that
//! one comes back for it after every call of the driver's.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    numbers: Mutex<Numbers>,
    next: Condvar,
}

#[derive(Debug, Default)]
struct Numbers {
    /// What who comes next gets.
    free: u64,
    /// Whose turn it is; nobody's, if it is the same.
    called: u64,
}

/// It is the turn of who has this.
#[derive(Debug)]
pub(crate) struct Called<'a>(&'a Queue);

impl Queue {
    /// A panic leaves the numbers as they are to be.
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits.
    pub(crate) fn wait(&self) -> Called<'_> {
        let mut numbers = self.numbers();
        let own = numbers.free;
        numbers.free += 1;
        while numbers.called != own {
            numbers = self.next.wait(numbers).unwrap_or_else(PoisonError::into_inner);
        }
        Called(self)
    }

    /// Does not: `None` if it is somebody else's turn.
    pub(crate) fn try_now(&self) -> Option<Called<'_>> {
        let mut numbers = self.numbers();
        (numbers.called == numbers.free).then(|| {
            numbers.free += 1;
            Called(self)
        })
    }
}

impl Drop for Called<'_> {
    fn drop(&mut self) {
        let mut numbers = self.0.numbers();
        numbers.called += 1;
        if numbers.called != numbers.free {
            self.0.next.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_is_one_threads_turn_at_a_time() {
        let (queue, inside) = (Queue::default(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..2000 {
                        let called = if n % 3 == 0 {
                            queue.try_now()
                        } else {
                            Some(queue.wait())
                        };
                        let Some(_called) = called else { continue };
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(queue.try_now().is_some());
    }

    /// One that comes back at once waits until those who asked meanwhile had it.
    #[test]
    fn who_comes_back_at_once_overtakes_nobody() {
        let (queue, turns, done) = (Queue::default(), AtomicU32::new(0), AtomicBool::new(false));
        let mut overtaken: Vec<u32> = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _called = queue.wait();
                    turns.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            let waits = (0..99).map(|_| {
                let before = turns.load(Ordering::Relaxed);
                drop(queue.wait());
                turns.load(Ordering::Relaxed) - before
            });
            let overtaken = waits.collect();
            done.store(true, Ordering::Relaxed);
            overtaken
        });
        overtaken.sort_unstable();
        assert!(overtaken[49] <= 2, "{overtaken:?}");
    }

    #[test]
    fn a_panic_ends_a_turn() {
        let queue = Queue::default();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _called = queue.wait();
            std::panic::resume_unwind(Box::new("in the middle"));
        }));
        assert!(outcome.is_err() && queue.try_now().is_some());
    }
}
