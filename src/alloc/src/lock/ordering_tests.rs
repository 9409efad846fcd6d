//! The lock under loom. A model of it, as its patience and the mutex in it are not to be had there: what `Lock::lock` and
//! `Lock::wait` do, and the mutex for them, in the same orders.
#![allow(clippy::unwrap_used)]

mod entering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

struct Modelled {
    first: AtomicU32,
    locked: AtomicBool,
    /// What is locked, as far as others see it.
    value: AtomicU32,
    lock: Ordering,
    unlock: Ordering,
}

impl Modelled {
    fn try_lock(&self) -> bool {
        let taken = self.locked.compare_exchange(false, true, self.lock, Ordering::Relaxed);
        taken.is_ok()
    }

    fn look(&self) -> bool {
        !self.locked.load(Ordering::Relaxed) && self.try_lock()
    }

    fn lock(&self) {
        if self.first.load(Ordering::Relaxed) == 0 && self.try_lock() {
            return;
        }
        loop {
            self.first.fetch_add(1, Ordering::Relaxed);
            let found = self.look();
            self.first.fetch_sub(1, Ordering::Relaxed);
            if found {
                return;
            }
            thread::yield_now();
        }
    }

    fn count(&self) {
        self.lock();
        let before = self.value.load(Ordering::Relaxed);
        self.value.store(before + 1, Ordering::Relaxed);
        self.locked.store(false, self.unlock);
    }
}

/// Whether nothing is lost of what two threads count, and nobody is left who comes first.
fn holds(lock: Ordering, unlock: Ordering) -> bool {
    let model = move || {
        let modelled = Arc::new(Modelled {
            first: AtomicU32::new(0),
            locked: AtomicBool::new(false),
            value: AtomicU32::new(0),
            lock,
            unlock,
        });
        let other = thread::spawn({
            let modelled = modelled.clone();
            move || {
                modelled.count();
                modelled.count();
            }
        });
        modelled.count();
        other.join().unwrap();
        assert_eq!(modelled.value.load(Ordering::Relaxed), 3, "lost");
        assert_eq!(modelled.first.load(Ordering::Relaxed), 0);
    };
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    std::panic::catch_unwind(move || builder.check(model)).is_ok()
}

#[test]
fn what_is_locked_is_seen_by_who_has_it_next_whenever_it_is_seen_who_comes_first() {
    assert!(holds(Ordering::Acquire, Ordering::Release));
    assert!(!holds(Ordering::Relaxed, Ordering::Release), "nobody misses the lock's");
    assert!(
        !holds(Ordering::Acquire, Ordering::Relaxed),
        "nobody misses the unlock's"
    );
}
