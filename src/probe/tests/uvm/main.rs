//! The watch over managed memory, its helper process and real watched processes, with a fake driver.
//!
//! This program plays all of them: its first argument says which. Without one it runs the tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod events;
mod reasons;
mod release;
mod residency;
mod roles;
mod stage;
mod watching;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

type Test = (&'static str, fn());

/// Makes the table of tests: each function with its name.
macro_rules! tests {
    ($($module:ident: $($name:ident),+;)+) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), $module::$name as fn())),+),+]
    };
}

const TESTS: &[Test] = tests! {
    release: ended_processes, watchers_that_are_killed, stopped_helper_without_watcher, terminal_stops_and_hangs_up,
        one_that_is_no_longer_watched;
    watching: counters_arrive, every_series, two_watchers, as_many_as_there_are_slots, reused_slot, dead_helper,
        second_descriptor, recorded_counters;
    events: recorded_events, blocks, events_that_wait_for_a_flush, dropped_events, hostile_entries, another_process;
    reasons: drivers, processes, devices, refusals, other_users;
    residency: pages, recorded_policy;
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if roles::play(&arguments) {
        return;
    }
    let filters: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let chosen = |(name, _): &&Test| filters.is_empty() || filters.iter().any(|f| name.contains(f.as_str()));
    let tests: Vec<&Test> = TESTS.iter().filter(chosen).collect();
    if arguments.iter().any(|a| a == "--list") {
        return tests.iter().for_each(|(name, _)| println!("{name}: test"));
    }
    let failed = Mutex::new(Vec::new());
    // Tests that measure time run first, one at a time.
    let (timed, others): (Vec<&Test>, Vec<&Test>) = tests.iter().partition(|(name, _)| name.starts_with("release"));
    run(&timed, 2, &failed);
    run(&others, 3, &failed);
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "failed: {}", failed.join(", "));
}

/// Runs tests on this many threads.
fn run(tests: &[&Test], threads: usize, failed: &Mutex<Vec<&str>>) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((name, test)) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let passed = catch_unwind(AssertUnwindSafe(test)).is_ok();
                    println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
                    if !passed {
                        failed.lock().unwrap().push(*name);
                    }
                }
            });
        }
    });
}
