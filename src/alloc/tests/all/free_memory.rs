//! What a program gives back before more memory is taken: a process has one function for that, so that each test has a process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use gpumem_alloc::{Allocator, Buffer, Config, Publish, SegmentMode, Stream, device, set_free_memory_callback};

use crate::common::has_a_process;

const MIB: u64 = 1 << 20;

/// What others have, and how often it was asked for.
static LENT: Mutex<Vec<Buffer<u8>>> = Mutex::new(Vec::new());
static ASKED: AtomicUsize = AtomicUsize::new(0);

struct Called;

impl Called {
    fn begin(function: fn()) -> Called {
        set_free_memory_callback(Some(function));
        Called
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        set_free_memory_callback(None);
        LENT.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn give_back_all() {
    ASKED.fetch_add(1, Ordering::Relaxed);
    let lent = std::mem::take(&mut *LENT.lock().unwrap());
    drop(lent);
}

fn asked() -> usize {
    ASKED.load(Ordering::Relaxed)
}

fn allocator(segments: SegmentMode, budget: Option<u64>) -> Allocator {
    let config = Config {
        publish: Publish::Off,
        segments,
        budget,
        ..Config::default()
    };
    Allocator::new(device::sim(Default::default()), config).unwrap()
}

fn take(allocator: &Allocator, bytes: u64) -> Buffer<u8> {
    allocator.alloc(bytes as usize, Stream::DEFAULT).unwrap()
}

#[test]
fn no_more_memory_is_taken_where_that_is_enough() {
    if !has_a_process("free_memory::no_more_memory_is_taken_where_that_is_enough") {
        return;
    }
    let _called = Called::begin(give_back_all);
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        let allocator = allocator(segments, None);
        ASKED.store(0, Ordering::Relaxed);
        let first = take(&allocator, 300 * MIB);
        assert_eq!(asked(), 1, "{segments:?}: once a request");
        LENT.lock().unwrap().push(first);
        let reserved = allocator.stats().all().reserved_bytes.peak;
        let second = take(&allocator, 300 * MIB);
        assert_eq!(asked(), 2, "{segments:?}");
        assert_eq!(allocator.stats().all().reserved_bytes.peak, reserved, "{segments:?}");
        drop(second);
        let third = take(&allocator, 300 * MIB);
        assert_eq!(asked(), 2, "{segments:?}: what is in the cache is handed out without");
        drop(third);
    }
}

#[test]
fn nothing_is_refused_that_fits_then() {
    if !has_a_process("free_memory::nothing_is_refused_that_fits_then") {
        return;
    }
    let _called = Called::begin(give_back_all);
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        let allocator = allocator(segments, Some(1000 * MIB));
        let lent = take(&allocator, 800 * MIB);
        LENT.lock().unwrap().push(lent);
        let held = take(&allocator, 100 * MIB);
        // There is no room for it, and there would be none if the device were asked.
        let next = take(&allocator, 700 * MIB);
        let stats = allocator.stats();
        assert_eq!(
            (stats.num_ooms, held.len() + next.len()),
            (0, 800 << 20),
            "{segments:?}"
        );
        let before = asked();
        assert!(
            allocator.alloc::<u8>(800 << 20, Stream::DEFAULT).is_err(),
            "{segments:?}"
        );
        assert_eq!((asked() - before, allocator.stats().num_ooms), (1, 1), "{segments:?}");
    }
}

#[test]
fn a_pool_has_what_is_given_back_to_it() {
    if !has_a_process("free_memory::a_pool_has_what_is_given_back_to_it") {
        return;
    }
    let _called = Called::begin(give_back_all);
    let allocator = allocator(SegmentMode::Auto, None);
    let pool = allocator.pool("tenant", Default::default()).unwrap();
    let lent = pool.alloc(500 << 20, Stream::DEFAULT).unwrap();
    LENT.lock().unwrap().push(lent);
    let before = allocator.stats().all().reserved_bytes.current;
    let next: Buffer<u8> = pool.alloc(500 << 20, Stream::DEFAULT).unwrap();
    assert_eq!(allocator.stats().all().reserved_bytes.current, before);
    drop(next);
}

#[test]
fn it_is_not_called_for_what_it_allocates_itself() {
    if !has_a_process("free_memory::it_is_not_called_for_what_it_allocates_itself") {
        return;
    }
    static ALLOCATOR: Mutex<Option<Allocator>> = Mutex::new(None);
    let _called = Called::begin(|| {
        give_back_all();
        let allocator = ALLOCATOR.lock().unwrap().clone().unwrap();
        drop(take(&allocator, 1000 * MIB));
    });
    let allocator = allocator(SegmentMode::Auto, None);
    *ALLOCATOR.lock().unwrap() = Some(allocator.clone());
    let block = take(&allocator, 900 * MIB);
    assert_eq!(asked(), 1);
    assert_eq!(
        allocator.stats().all().reserved_bytes.current,
        1000 * MIB,
        "where that was"
    );
    drop(block);
    *ALLOCATOR.lock().unwrap() = None;
}

#[test]
fn threads_give_back_what_others_lent() {
    if !has_a_process("free_memory::threads_give_back_what_others_lent") {
        return;
    }
    let _called = Called::begin(give_back_all);
    let allocator = allocator(SegmentMode::Auto, Some(2000 * MIB));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let allocator = &allocator;
            scope.spawn(move || {
                for round in 0..300_u64 {
                    let bytes = (1 + (round * 7 + thread) % 90) * MIB;
                    // Others may have lent all again by the time that this one looks.
                    let block = (0..100).find_map(|_| allocator.alloc(bytes as usize, Stream(1 + thread)).ok());
                    LENT.lock().unwrap().push(block.unwrap());
                }
            });
        }
    });
    assert!(asked() > 10);
    give_back_all();
    assert_eq!(allocator.stats().all().allocated_bytes.current, 0);
}

/// Who takes one away waits for its calls, while another thread may have set the next one.
#[test]
fn one_that_is_set_while_another_is_taken_away_is_called() {
    if !has_a_process("free_memory::one_that_is_set_while_another_is_taken_away_is_called") {
        return;
    }
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let _called = Called::begin(|| {
        BEGUN.store(1, Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(100));
    });
    let until = |what: &AtomicUsize| {
        while what.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
    };
    static AWAY: AtomicUsize = AtomicUsize::new(0);
    let allocator = allocator(SegmentMode::Auto, None);
    std::thread::scope(|scope| {
        scope.spawn(|| take(&allocator, 100 * MIB));
        scope.spawn(|| {
            until(&BEGUN);
            AWAY.store(1, Ordering::Relaxed);
            set_free_memory_callback(None);
        });
        until(&AWAY);
        std::thread::sleep(std::time::Duration::from_millis(20));
        set_free_memory_callback(Some(give_back_all));
    });
    drop(take(&allocator, 1000 * MIB));
    assert_eq!(asked(), 1);
}
