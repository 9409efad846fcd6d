//! What the monitor's thread is to the process that it lives in.
#![allow(clippy::unwrap_used)]

use super::tests::{looking_for, start};
use super::*;
use crate::device::{Sim, SimConfig};
use crate::{Allocator, Config, Publish, SegmentMode};

/// Signals that are blocked on threads of a status file's process: bit n - 1 is signal n.
fn blocked(status: &std::path::Path) -> u64 {
    let status = std::fs::read_to_string(status).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    line.map_or(0, |line| u64::from_str_radix(line.trim(), 16).unwrap())
}

/// A program that blocks signals and waits for them gets them, as without a monitor.
#[test]
fn its_thread_takes_none_of_the_programs_signals() {
    let own = || blocked(std::path::Path::new("/proc/thread-self/status"));
    let before = own();
    let (_sim, allocator) = start(SegmentMode::Auto, Publish::Off);
    let monitor = allocator.monitor(looking_for(Action::Warn).0).unwrap();
    assert_eq!(own(), before);
    let named = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "gpumem-monitor")
    };
    let tasks = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks.map(|task| task.unwrap().path()).filter(named).collect::<Vec<_>>()
    };
    // A thread gives itself its name.
    let began = Instant::now();
    while tasks().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(20), "there is no such thread");
        std::thread::sleep(Duration::from_millis(1));
    }
    let bit = |signal: libc::c_int| 1 << (signal - 1);
    for task in tasks() {
        let blocked = blocked(&task.join("status"));
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, libc::SIGCHLD, libc::SIGALRM] {
            // Of another test, and over.
            assert!(blocked & bit(signal) != 0 || !task.exists(), "{signal}: {blocked:x}");
        }
        assert_eq!(
            blocked & bit(libc::SIGSEGV),
            0,
            "its own faults are for the program's handler"
        );
    }
    drop(monitor);
}

/// The driver may be gone once a program exits.
#[test]
fn a_configured_monitor_ends_with_the_goodbye() {
    let config = Config {
        publish: Publish::Off,
        monitor: Some(looking_for(Action::Release).0),
        ..Config::default()
    };
    let allocator = Allocator::new(Sim::new(SimConfig::default()).device(), config).unwrap();
    let running = || allocator.0.monitor.get().unwrap().is_running();
    assert!(running());
    allocator.goodbye();
    let began = Instant::now();
    while running() {
        assert!(began.elapsed() < Duration::from_secs(20), "it goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}
