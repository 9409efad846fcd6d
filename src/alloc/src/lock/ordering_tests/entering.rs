//! The lock that one thread enters by plain stores, under loom: the very files that programs run, over stand-ins for atomics, the barriers,
//! the lock that is everybody else's, and who has which seat. The barrier that one thread has the kernel make for all is a barrier on both sides here.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use biased::{Biased, INNER, TURNS};
use without::{Without, leave_out};

#[path = "../biased.rs"]
#[allow(
    dead_code,
    clippy::duplicate_mod,
    reason = "what is taken in a second time is not all used here"
)]
mod biased;
#[path = "../seat.rs"]
#[allow(clippy::duplicate_mod, reason = "taken in a second time")]
mod seat;

/// What is left out of it, to see that it is missed.
mod without {
    use std::cell::Cell;

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) enum Without {
        Nothing,
        Light,
        Heavy,
        /// Who is out does not hand on what it did.
        Leave,
        /// Nor who is somewhere else by then.
        Elsewhere,
        /// Who waits for that does not take it.
        Wait,
    }

    // Loom's threads are coroutines of one thread.
    thread_local! {
        static LEFT_OUT: Cell<Without> = const { Cell::new(Without::Nothing) };
    }

    pub(super) fn leave_out(without: Without) {
        LEFT_OUT.set(without);
    }

    pub(super) fn is_left_out(without: Without) -> bool {
        LEFT_OUT.get() == without
    }
}

mod atomic {
    pub(super) use loom::sync::atomic::Ordering;

    use super::seat::OUTSIDE;
    use super::without::{Without, is_left_out};

    #[derive(Debug)]
    pub(super) struct AtomicUsize(loom::sync::atomic::AtomicUsize);

    fn unless(without: Without, order: Ordering) -> Ordering {
        if is_left_out(without) { Ordering::Relaxed } else { order }
    }

    impl AtomicUsize {
        pub(super) fn new(value: usize) -> AtomicUsize {
            AtomicUsize(loom::sync::atomic::AtomicUsize::new(value))
        }

        pub(super) fn load(&self, order: Ordering) -> usize {
            self.0.load(unless(Without::Wait, order))
        }

        pub(super) fn store(&self, value: usize, order: Ordering) {
            let stored = if value == OUTSIDE {
                Without::Leave
            } else {
                Without::Elsewhere
            };
            self.0.store(value, unless(stored, order));
        }
    }
}

mod asymmetric {
    use loom::sync::atomic::{Ordering, fence};

    use super::without::{Without, is_left_out};

    pub(super) fn is_there() -> bool {
        true
    }

    pub(super) fn light() {
        if !is_left_out(Without::Light) {
            fence(Ordering::SeqCst);
        }
    }

    pub(super) fn heavy() {
        if !is_left_out(Without::Heavy) {
            fence(Ordering::SeqCst);
        }
    }
}

mod seats {
    use super::atomic::AtomicUsize;
    use super::seat::{FLOORS, OUTSIDE, Seat};

    loom::thread_local! {
        static MINE: &'static Seat = Box::leak(Box::new(Seat { inside: [(); FLOORS].map(|()| AtomicUsize::new(OUTSIDE)) }));
    }

    pub(super) fn mine() -> &'static Seat {
        MINE.with(|mine| *mine)
    }

    pub(super) fn take() -> Option<&'static Seat> {
        Some(mine())
    }
}

mod patience {
    pub(super) fn until(is_so: impl Fn() -> bool) {
        while !is_so() {
            loom::thread::yield_now();
        }
    }
}

type Guard<'a, T> = loom::sync::MutexGuard<'a, T>;

#[derive(Debug)]
struct Lock<T>(loom::sync::Mutex<T>);

impl<T> Lock<T> {
    fn new(value: T) -> Lock<T> {
        Lock(loom::sync::Mutex::new(value))
    }

    fn lock(&self) -> Guard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// What is counted under it by loads and stores that order nothing.
fn count<const FLOOR: usize>(lock: &Biased<AtomicU32, FLOOR>) {
    let counter = lock.lock();
    let before = counter.load(Ordering::Relaxed);
    counter.store(before + 1, Ordering::Relaxed);
}

/// Whether nothing is lost of what a thread counts that may enter, and others, beside one or two of these.
fn holds(without: Without, others: usize) -> bool {
    holds_from(TURNS + 1, without, others)
}

/// The same where the others come after so many turns of it.
fn holds_from(turns: u32, without: Without, others: usize) -> bool {
    leave_out(without);
    let model = move || {
        let lock = Arc::new(Biased::<_, INNER>::new(AtomicU32::new(0)));
        for _ in 0..turns {
            count(&lock);
        }
        let others: Vec<_> = (0..others)
            .map(|_| {
                let lock = lock.clone();
                thread::spawn(move || count(&lock))
            })
            .collect();
        count(&lock);
        count(&lock);
        let counted = turns + 2 + others.len() as u32;
        others.into_iter().for_each(|other| other.join().unwrap());
        let found = lock.lock().load(Ordering::Relaxed);
        assert_eq!(found, counted, "lost");
    };
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(if others == 1 { 4 } else { 3 });
    std::panic::catch_unwind(move || builder.check(model)).is_ok()
}

#[test]
fn one_thread_at_a_time_has_it_whoever_may_enter() {
    assert!(holds(Without::Nothing, 1));
    assert!(holds(Without::Nothing, 2));
}

/// The next turn is the one that it is given the right at.
#[test]
fn one_thread_at_a_time_has_it_while_the_right_is_given() {
    assert!(holds_from(TURNS, Without::Nothing, 1));
    assert!(holds_from(TURNS, Without::Nothing, 2));
    assert!(
        !holds_from(TURNS, Without::Leave, 1),
        "nobody misses the order of who leaves"
    );
}

/// Whether nothing is lost where the thread that may enter goes on into another lock that it may enter, and who waits for it looks
/// only then.
fn holds_when_it_goes_elsewhere(without: Without) -> bool {
    leave_out(without);
    let model = move || {
        let locks = Arc::new([(); 2].map(|()| Biased::<_, INNER>::new(AtomicU32::new(0))));
        for lock in &*locks {
            (0..TURNS + 1).for_each(|_| count(lock));
        }
        let other = thread::spawn({
            let locks = locks.clone();
            move || count(&locks[0])
        });
        count(&locks[0]);
        count(&locks[1]);
        other.join().unwrap();
        let found = locks[0].lock().load(Ordering::Relaxed);
        assert_eq!(found, TURNS + 3, "lost");
    };
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    std::panic::catch_unwind(move || builder.check(model)).is_ok()
}

#[test]
fn who_is_seen_in_another_lock_has_handed_on_what_it_did_in_this_one() {
    assert!(holds_when_it_goes_elsewhere(Without::Nothing));
    assert!(
        !holds_when_it_goes_elsewhere(Without::Elsewhere),
        "nobody misses the order of who is elsewhere"
    );
}

#[test]
fn each_barrier_and_order_is_missed() {
    for (without, what) in [
        (Without::Light, "who enters"),
        (Without::Heavy, "who takes the right away"),
        (Without::Leave, "who leaves"),
        (Without::Wait, "who waits"),
    ] {
        assert!(!holds(without, 1), "nobody misses the order of {what}");
    }
}
