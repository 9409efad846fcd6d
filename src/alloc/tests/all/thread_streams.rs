//! Threads' own default streams, by their numbers.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use gpumem_alloc::device::{Call, Sim, Timeline};
use gpumem_alloc::{Allocator, PoolConfig, Route, SegmentMode, Stream};

use crate::common::{MIB, sharing, start};

const ELSEWHERE: Route = Route::Stream(Stream(9));

/// A thread ends that had a stream of its own, which the GPU is busy with or not.
fn thread_ends(sim: &Sim, alloc: &Allocator, busy: bool) -> Stream {
    let work = || {
        let buffer = alloc.alloc::<u8>(MIB, Stream::per_thread()).unwrap();
        if busy {
            sim.enqueue(buffer.stream(), buffer.device_ptr(), buffer.bytes());
        }
        buffer.stream()
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// As a question about the default stream would end it.
#[test]
fn no_question_about_ended_threads_is_asked_while_a_graph_is_captured() {
    let (sim, alloc) = start(1 << 30, Timeline::Manual, sharing(SegmentMode::Auto));
    let pool = alloc.private_pool().unwrap();
    thread_ends(&sim, &alloc, false);
    alloc.begin_allocate_to_pool(&pool, ELSEWHERE).unwrap();
    thread_ends(&sim, &alloc, false);
    alloc.end_allocate_to_pool(&pool).unwrap();
    assert_eq!(sim.violations(), [""; 0]);
}

#[test]
fn no_capture_begins_while_it_is_asked_about_ended_threads() {
    let (sim, alloc) = start(1 << 30, Timeline::Manual, sharing(SegmentMode::Auto));
    let pool = alloc.private_pool().unwrap();
    let kept = alloc.alloc::<u8>(MIB, Stream::DEFAULT).unwrap();
    thread_ends(&sim, &alloc, false);
    let pause = sim.pause_first(Call::QueryStream);
    thread::scope(|scope| {
        // Nothing is asked for but a place for one more stream.
        scope.spawn(|| kept.record_stream(Stream::per_thread()).unwrap());
        pause.wait();
        let begins = scope.spawn(|| alloc.begin_allocate_to_pool(&pool, ELSEWHERE).unwrap());
        let began = Instant::now();
        while !begins.is_finished() && began.elapsed() < Duration::from_millis(200) {
            thread::sleep(Duration::from_millis(1));
        }
        drop(pause);
    });
    alloc.end_allocate_to_pool(&pool).unwrap();
    assert_eq!(sim.violations(), [""; 0]);
}

/// Its thread asks its own stream alone, and does not wait for the default one.
#[test]
fn a_fill_by_another_thread_is_done_when_it_returns() {
    for segments in SegmentMode::ALL {
        let (sim, alloc) = start(1 << 30, Timeline::Manual, sharing(segments));
        let mut buffer = alloc.alloc::<u32>(MIB, Stream::per_thread()).unwrap();
        let mut copies = || {
            let before = sim.calls(Call::Copy);
            buffer.fill_words(7).unwrap();
            sim.calls(Call::Copy) - before
        };
        let mine = copies();
        let others = thread::scope(|scope| scope.spawn(&mut copies).join().unwrap());
        assert_eq!((mine, others), (1, 2), "it is read, which waits");
    }
}

/// However many there are.
#[test]
fn the_default_stream_is_asked_once_for_all_other_threads() {
    let (sim, alloc) = start(1 << 30, Timeline::Manual, sharing(SegmentMode::Stitched));
    let both = Barrier::new(21);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let buffer = alloc.alloc::<u8>(3 * MIB, Stream::per_thread()).unwrap();
                both.wait();
                drop(buffer);
                both.wait();
                both.wait();
            });
        }
        both.wait();
        both.wait();
        let before = sim.calls(Call::QueryStream);
        drop(alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap());
        let asked = sim.calls(Call::QueryStream) - before;
        both.wait();
        assert_eq!(asked, 1);
    });
}

/// However many pools it used.
#[test]
fn one_thread_that_ended_does_not_hold_up_the_others() {
    let (sim, alloc) = start(1 << 30, Timeline::Manual, sharing(SegmentMode::Auto));
    let pools = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p",
    ]
    .map(|name| alloc.pool(name, PoolConfig::default()).unwrap());
    let its = thread::scope(|scope| {
        let work = || {
            pools
                .iter()
                .for_each(|pool| drop(pool.alloc::<u8>(MIB, Stream::per_thread()).unwrap()));
            thread_ends(&sim, &alloc, true)
        };
        scope.spawn(work).join().unwrap()
    });
    thread_ends(&sim, &alloc, true);
    assert_eq!(sim.calls(Call::Record), 0);
    sim.finish(its);
}
