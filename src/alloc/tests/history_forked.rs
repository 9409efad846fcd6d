//! A history in a child that is forked while other threads of its parent take call stacks. In a process of its own: what the child finds
//! locked is the process's, whichever test uses it.
#![allow(unsafe_code, reason = "fork has no safe interface")]
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};

use gpumem_alloc::device::{self, SimConfig};
use gpumem_alloc::{Allocator, Config, History, Publish, Stack, Stacks, Stream};

fn recording() -> Allocator {
    let config = Config {
        publish: Publish::Off,
        history: History::On {
            max_events: 100,
            stacks: Stacks::All,
        },
        ..Config::default()
    };
    Allocator::new(device::sim(SimConfig::default()), config).unwrap()
}

/// All that a history does with call stacks.
fn use_history(alloc: &Allocator) -> bool {
    let held = alloc.alloc::<u8>(1000, Stream::DEFAULT).unwrap();
    alloc.step();
    let figures = alloc.history().unwrap();
    let peak = alloc.peak().unwrap();
    let shown = peak.to_string() + &alloc.leaks(1).unwrap().to_string() + &Stack::NONE.to_string();
    let snapshot = alloc.snapshot().unwrap();
    drop(held);
    figures.held == 1 && peak.allocated == 1024 && !shown.is_empty() && snapshot.segments.len() == 1
}

/// A child must make a new allocator, and may record its history: who took a call stack when it was forked does not exist there.
#[test]
fn a_forked_child_records_a_history_whoever_took_a_stack_meanwhile() {
    let done = AtomicBool::new(false);
    let wrong = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let alloc = recording();
                while !done.load(Ordering::Relaxed) {
                    drop(alloc.alloc::<u8>(1000, Stream::DEFAULT));
                    std::hint::black_box(alloc.peak().map(|peak| peak.to_string()));
                }
            });
        }
        let wrong = (0..40).find_map(|_| {
            // SAFETY: the child uses this library, which is made for that, and the C library's memory, and ends by _exit.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends the child if it hangs.
                unsafe { libc::alarm(60) };
                let right = use_history(&recording());
                // SAFETY: ends the child without running the test harness's exit handlers.
                unsafe { libc::_exit(if right { 0 } else { 1 }) };
            }
            let mut status = -1;
            // SAFETY: waits for the child made above; `status` is valid for writes.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            (waited != child || status != 0).then_some(status)
        });
        done.store(true, Ordering::Relaxed);
        wrong
    });
    assert_eq!(wrong, None, "every child ended in order");
}
