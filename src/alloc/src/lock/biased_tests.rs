//! The lock that one thread enters by plain stores, on real threads and with the kernel's barrier.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::asymmetric;
use super::biased::{self, INNER, Inside, OUTER, TURNS};
use super::seats;

type Biased<T> = biased::Biased<T, INNER>;

/// Takes it so often in a row.
fn take(lock: &Biased<u64>, times: u32) {
    for _ in 0..times {
        *lock.lock() += 1;
    }
}

/// Takes it so often in a row on another thread.
fn take_elsewhere(lock: &Biased<u64>, times: u32) {
    std::thread::scope(|scope| {
        scope.spawn(|| take(lock, times));
    });
}

#[test]
fn who_always_takes_it_may_enter_until_another_comes_and_then_after_twice_as_many_turns() {
    assert!(asymmetric::is_there(), "this kernel has no membarrier(2)");
    let lock = Biased::new(0);
    take(&lock, TURNS);
    assert!(!lock.may_be_entered());
    take(&lock, 1);
    assert!(lock.may_be_entered());
    take(&lock, 10);

    take_elsewhere(&lock, 1);
    assert!(!lock.may_be_entered());
    take(&lock, 2 * TURNS);
    assert!(!lock.may_be_entered());
    take(&lock, 1);
    assert!(lock.may_be_entered());
    assert_eq!(*lock.lock(), u64::from(3 * TURNS + 13));
}

#[test]
fn who_is_given_the_right_has_entered_and_enters_no_second_time() {
    let lock = Biased::new(0);
    take(&lock, TURNS);
    let first = lock.lock();
    assert!(lock.may_be_entered());
    assert!(!lock.is_mine() && lock.enter().is_none(), "two have it");
    drop(first);
    assert!(lock.enter().is_some());
}

/// It may leave that one first, and would be outside of every lock then.
#[test]
fn who_is_inside_of_another_one_is_not_given_the_right() {
    let locks = [Biased::new(0), Biased::new(0)];
    locks
        .iter()
        .zip([1, 0])
        .for_each(|(lock, more)| take(lock, TURNS + more));
    let entered = locks[0].enter().unwrap();
    let locked = locks[1].lock();
    drop(entered);
    assert!(locks[1].enter().is_none(), "two have it");
    drop(locked);
    take(&locks[1], TURNS);
    assert!(locks[1].may_be_entered());
}

#[test]
fn who_takes_the_right_away_waits_for_who_was_just_given_it() {
    let lock = Biased::new(0);
    take(&lock, TURNS);
    let first = lock.lock();
    assert!(lock.may_be_entered());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| take(&lock, 1));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!other.is_finished(), "two have it");
        drop(first);
    });
    assert_eq!(*lock.lock(), u64::from(TURNS) + 1);
}

#[test]
fn the_right_goes_from_one_thread_to_another_also_where_the_first_has_ended() {
    let lock = Biased::new(0);
    take_elsewhere(&lock, TURNS + 1);
    assert!(lock.may_be_entered());
    take(&lock, 1);
    assert!(!lock.may_be_entered());
    take(&lock, 2 * TURNS);
    assert!(lock.may_be_entered());
    assert_eq!(*lock.lock(), u64::from(3 * TURNS + 2));
}

#[test]
fn a_lock_is_entered_beside_another_one() {
    let locks = [Biased::new(0), Biased::new(0)];
    locks.iter().for_each(|lock| take(lock, TURNS + 1));
    let mut first = locks[0].lock();
    *first += 1;
    take(&locks[1], 1);
    take_elsewhere(&locks[1], 1);
    drop(first);
    assert_eq!(
        locks.map(|lock| *lock.lock()),
        [u64::from(TURNS) + 2, u64::from(TURNS) + 3]
    );
}

/// One that a thread takes on its way to another, as who is inside of a heap takes a lane's: it enters both, and whoever wants one of them
/// has that while the thread may be inside of the other.
#[test]
fn a_lock_is_entered_inside_of_one_of_another_floor() {
    let (outer, inner) = (biased::Biased::<u64, OUTER>::new(0), Biased::new(0));
    (0..=TURNS).for_each(|_| *outer.lock() += 1);
    take(&inner, TURNS + 1);
    let mut heap = outer.enter().unwrap();
    let mut lane = inner.enter().unwrap();
    *heap += 1;
    *lane += 1;
    drop(lane);
    take_elsewhere(&inner, 1);
    assert!(!inner.may_be_entered() && outer.may_be_entered());
    *heap += 1;
    drop(heap);
    assert_eq!(*inner.lock(), u64::from(TURNS) + 3);
    assert_eq!(*outer.lock(), u64::from(TURNS) + 3);
}

#[test]
fn of_two_locks_of_a_floor_the_second_is_taken_as_others_take_it() {
    let locks = [Biased::new(0), Biased::new(0)];
    locks.iter().for_each(|lock| take(lock, TURNS + 1));
    let first = locks[0].enter().unwrap();
    assert!(locks[1].enter().is_none());
    *locks[1].lock() += 1;
    drop(first);
    assert_eq!(*locks[1].lock(), u64::from(TURNS) + 2);
}

#[test]
fn who_has_ended_leaves_its_seat_to_others() {
    let number = || std::thread::spawn(|| seats::take().unwrap().number()).join().unwrap();
    let numbers: BTreeSet<usize> = (0..100).map(|_| number()).collect();
    // Other tests take some meanwhile.
    assert!(numbers.len() < 50, "{} seats", numbers.len());
}

#[test]
fn nothing_is_lost_between_one_that_enters_and_others_that_come_at_any_moment() {
    let lock = Biased::new((0u64, 0u64));
    let done = AtomicBool::new(false);
    let begin = Barrier::new(4);
    let add = || {
        let mut both = lock.lock();
        both.0 += 1;
        std::hint::black_box(&mut both);
        both.1 += 1;
        assert_eq!(both.0, both.1);
    };
    let counted: u64 = std::thread::scope(|scope| {
        let enters = scope.spawn(|| {
            // It has the right before there is anybody else.
            (0..=TURNS).for_each(|_| add());
            begin.wait();
            let mut counted = u64::from(TURNS) + 1;
            while !done.load(Ordering::Relaxed) {
                add();
                counted += 1;
            }
            counted
        });
        let others = [50, 300, 1000].map(|pause| {
            let (add, begin) = (&add, &begin);
            scope.spawn(move || {
                begin.wait();
                for _ in 0..200 {
                    add();
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_micros(pause) {}
                }
                200
            })
        });
        let others: u64 = others.into_iter().map(|other| other.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        others + enters.join().unwrap()
    });
    assert_eq!(*lock.lock(), (counted, counted));
}

#[test]
fn a_panic_inside_leaves_it_open() {
    let lock = Biased::new(0);
    take(&lock, TURNS + 1);
    assert!(lock.may_be_entered());
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _inside = lock.lock();
        std::panic::resume_unwind(Box::new("in the middle"));
    }));
    assert!(outcome.is_err());
    take(&lock, 1);
    take_elsewhere(&lock, 1);
    assert_eq!(*lock.lock(), u64::from(TURNS) + 3);
}

/// A guard says at its thread's seat that it has left, and lends what perhaps only one thread at a time may look at: this names two
/// functions each, and does not compile, where a guard may go to another thread.
#[test]
fn a_guard_stays_with_its_thread() {
    struct Goes;
    struct Shared;
    trait OneOfThem<Which> {
        fn named() {}
    }
    impl<T> OneOfThem<()> for T {}
    impl<T: Send> OneOfThem<Goes> for T {}
    impl<T: Sync> OneOfThem<Shared> for T {}
    <Inside<'_, u8> as OneOfThem<_>>::named();
}
