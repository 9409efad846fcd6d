//! Children that are forked while another thread makes the process's first allocator. In a process of its own: what is done once for all
//! allocators is done there, and waits for the kernel where there are threads.
#![allow(clippy::unwrap_used)]

use std::sync::Barrier;
use std::time::Duration;

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

#[test]
fn a_child_that_is_forked_meanwhile_makes_its_own() {
    let begin = Barrier::new(2);
    let ends: Vec<i32> = std::thread::scope(|scope| {
        scope.spawn(|| {
            begin.wait();
            assert!(use_by_two_threads(&allocator()));
        });
        begin.wait();
        let children: Vec<i32> = (0..20)
            .map(|_| {
                // SAFETY: the child uses this library, which is made for that, and the C library's memory, and ends by _exit.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: ends the child if it hangs.
                    unsafe { libc::alarm(20) };
                    let right = use_by_two_threads(&allocator());
                    // SAFETY: ends the child without running the test harness's exit handlers.
                    unsafe { libc::_exit(if right { 0 } else { 1 }) };
                }
                std::thread::sleep(Duration::from_millis(1));
                child
            })
            .collect();
        let end = |child| {
            let mut status = -1;
            // SAFETY: waits for a child made above; `status` is valid for writes.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            if waited == child { status } else { -1 }
        };
        children.into_iter().map(end).collect()
    });
    assert_eq!(ends, [0; 20], "every child ended in order");
}
