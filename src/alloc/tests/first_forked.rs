//! Children that are forked while another thread makes the process's first allocator. In a process of its own: what is done once for all
//! allocators is done there, and waits for the kernel where there are threads.
#![allow(unsafe_code, reason = "fork has no safe interface")]
#![allow(clippy::unwrap_used)]

use std::sync::Barrier;
use std::time::{Duration, Instant};

use gpumem_alloc::device::{self, SimConfig};
use gpumem_alloc::{Allocator, Config, Publish, Stream};

fn allocator() -> Allocator {
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    Allocator::new(device::sim(SimConfig::default()), config).unwrap()
}

/// One thread takes the lane again and again, and then another one.
fn use_by_two_threads(alloc: &Allocator) -> bool {
    let pairs = || (0..5000).for_each(|_| drop(alloc.alloc::<u8>(4096, Stream::DEFAULT).unwrap()));
    pairs();
    std::thread::scope(|scope| {
        scope.spawn(pairs);
    });
    pairs();
    alloc.stats().all().allocation.allocated == 15_000
}

/// Forks a child that does its work, and ends in order if that says so. A child that hangs is ended.
fn fork(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child uses this library, which is made for that, and the C library's memory, and ends by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child if it hangs.
        unsafe { libc::alarm(20) };
        let right = work();
        // SAFETY: ends the child without running the test harness's exit handlers.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    child
}

/// What became of a child.
fn end(child: i32) -> i32 {
    let mut status = -1;
    // SAFETY: waits for a child made above; `status` is valid for writes.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    if waited == child { status } else { -1 }
}

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// What becomes of children that do some work, and are forked while another thread does the same. It and the first fork begin so much later.
fn forked_meanwhile(children: u32, [thread, fork_first]: [Duration; 2], work: fn() -> bool) -> Vec<i32> {
    let begin = Barrier::new(2);
    let children: Vec<i32> = std::thread::scope(|scope| {
        scope.spawn(|| {
            begin.wait();
            spin(thread);
            assert!(work());
        });
        begin.wait();
        let forked = |n| {
            match n {
                0 => spin(fork_first),
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
            fork(work)
        };
        (0..children).map(forked).collect()
    });
    children.into_iter().map(end).collect()
}

#[test]
fn a_child_that_is_forked_meanwhile_makes_its_own() {
    // Here nothing was made yet, so each of these children is one where that is done for the first time.
    let few = || allocator().alloc::<u8>(4096, Stream::DEFAULT).is_ok();
    let once = |later| fork(|| forked_meanwhile(1, later, few) == [0]);
    let ends: Vec<i32> = (0..60)
        .map(|n| Duration::from_micros(2 * n))
        .flat_map(|later| [[later, Duration::ZERO], [Duration::ZERO, later]])
        .map(|later| end(once(later)))
        .collect();
    assert_eq!(ends, [0; 120], "every child of a child ended in order");
    let ends = forked_meanwhile(20, [Duration::ZERO; 2], || use_by_two_threads(&allocator()));
    assert_eq!(ends, [0; 20], "every child ended in order");
}
