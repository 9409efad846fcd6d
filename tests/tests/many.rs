//! More channels than a program may have files open.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gpumem_channel::Publisher;
use gpumem_tests::{Terminal, World, gpumem_tui, publish, uuid_of};

/// Runs what follows with at most 64 open files.
const FEW: [&str; 2] = ["-c", "ulimit -n 64 && exec \"$0\" \"$@\""];

fn publishers(world: &World, count: usize) -> Vec<Publisher> {
    (0..count).map(|_| publish(world, uuid_of(0))).collect()
}

#[test]
fn a_channel_takes_one_open_file() {
    let world = World::without_gpu();
    let _publishers = publishers(&world, 40);
    let mut report = Command::new("/bin/sh");
    report
        .args(FEW)
        .arg(gpumem_tui())
        .arg("--json")
        .envs(world.environment());
    let report = report.output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["processes"].as_array().unwrap().len(), 40);
}

#[test]
fn channels_that_could_not_be_opened_are_read_once_they_can() {
    let world = World::without_gpu();
    let mut first = publishers(&world, 60);
    let program = gpumem_tui();
    let [flag, few] = FEW;
    let args = [flag, few, program.to_str().unwrap(), "--interval", "100ms"];
    let terminal = Terminal::start_program(Path::new("/bin/sh"), &world, &args, 120, 40, &[]);
    terminal.wait_for(&["channel files cannot be read"]);
    // Not even the folder can be looked into then: it is no reason to forget what is read.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        let screen = terminal.text();
        assert!(screen.contains("channel files cannot be read"), "{screen}");
        std::thread::sleep(Duration::from_millis(50));
    }
    first.truncate(20);
    terminal.wait("all of them", |screen| {
        screen.contains("60 rows") && !screen.contains("cannot be read")
    });
}
