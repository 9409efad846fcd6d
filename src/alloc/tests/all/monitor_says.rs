//! What a monitor says on stderr, in a program of its own: this one is run again.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpumem_alloc::device::Timeline;
use gpumem_alloc::{Action, Listener, MonitorConfig, SegmentMode, Stream};

use crate::common::{MIB, of, start};

const VARIABLE: &str = "GPUMEM_TEST_MONITOR";

/// A program whose listener panics, when it is told to.
#[test]
fn has_a_listener_that_panics() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let (_sim, alloc) = start(1 << 30, Timeline::Immediate, of(SegmentMode::Plain));
    let mut blocks: Vec<_> = (0..10)
        .map(|_| alloc.alloc::<u8>(16 * MIB, Stream::DEFAULT).ok())
        .collect();
    blocks.iter_mut().step_by(2).for_each(|block| *block = None);
    let called = Arc::new(AtomicBool::new(false));
    let calls = Arc::clone(&called);
    let monitor = alloc.monitor(MonitorConfig {
        lasting: Duration::ZERO,
        least: 64 << 20,
        every: Duration::from_millis(1),
        action: Action::Release,
        listener: Some(Listener::new(move |_| {
            calls.store(true, Ordering::Release);
            panic!("a listener's");
        })),
        ..MonitorConfig::default()
    });
    let monitor = monitor.unwrap();
    let began = Instant::now();
    while !called.load(Ordering::Acquire) {
        assert!(began.elapsed() < Duration::from_secs(60), "it was never called");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(monitor.is_running());
    // Waits for what it is doing, which is saying so.
    drop(monitor);
}

#[test]
fn that_its_listener_panicked_and_what_that_was_to_be_told() {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args([
        "--exact",
        "monitor_says::has_a_listener_that_panics",
        "--nocapture",
        "--test-threads=1",
    ]);
    let output = program.env(VARIABLE, "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("gpumem: ")).collect();
    let [panicked, told] = lines[..] else { panic!("{said}") };
    assert_eq!(
        panicked,
        "gpumem: a monitor's listener panicked: it is not called again"
    );
    assert!(
        told.contains("external fragmentation of 80 %") && told.ends_with("released 80.0 MiB"),
        "{told}"
    );
}
