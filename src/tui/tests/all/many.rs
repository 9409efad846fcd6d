//! More channels than the limit of open files allows, and very low limits.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gpumem_channel::Publisher;
use gpumem_tests::{Ended, Modes, Terminal, World, gpumem_tui, publish, stopped, until, uuid_of};
use rustix::process::Signal;

/// Returns a shell command that runs its arguments with at most `limit` open files.
fn few(limit: u32) -> String {
    format!("ulimit -n {limit} && exec \"$0\" \"$@\"")
}

/// Returns the output of `--json`, run by such a shell command.
fn report(world: &World, line: &str) -> serde_json::Value {
    let mut report = Command::new("/bin/sh");
    report.args(["-c", line]).arg(gpumem_tui()).arg("--json");
    let report = report.envs(world.environment()).output().unwrap();
    serde_json::from_slice(&report.stdout).unwrap()
}

fn publishers(world: &World, count: usize) -> Vec<Publisher> {
    (0..count).map(|_| publish(world, uuid_of(0))).collect()
}

#[test]
fn a_channel_takes_one_open_file() {
    let world = World::without_gpu();
    let _publishers = publishers(&world, 40);
    let report = report(&world, &few(64));
    assert_eq!(report["processes"].as_array().unwrap().len(), 40);
}

#[test]
fn channels_that_could_not_be_opened_are_read_once_they_can() {
    let world = World::without_gpu();
    let mut first = publishers(&world, 60);
    let program = gpumem_tui();
    let few = few(64);
    let args = ["-c", &few, program.to_str().unwrap(), "--interval", "100ms"];
    let terminal = Terminal::start_program(Path::new("/bin/sh"), &world, &args, 120, 40, &[]);
    terminal.wait_for(&["files that were not reached:"]);
    // Not even the folder can be listed then. Channels that are already open must be kept.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        let screen = terminal.text();
        assert!(screen.contains("files that were not reached:"), "{screen}");
        std::thread::sleep(Duration::from_millis(50));
    }
    first.truncate(20);
    terminal.wait("all of them", |screen| {
        screen.contains("60 rows") && !screen.contains("not reached")
    });
}

#[test]
fn it_suspends_and_resumes_at_the_limit_of_open_files() {
    let program = gpumem_tui();
    for (limit, count) in [(12, 0), (12, 40), (64, 100)] {
        let world = World::without_gpu();
        let _publishers = publishers(&world, count);
        let few = few(limit);
        let args = ["-c", &few, program.to_str().unwrap(), "--interval", "100ms"];
        let mut terminal = Terminal::start_program(Path::new("/bin/sh"), &world, &args, 120, 40, &[]);
        terminal.wait_for(&["1 Overview"]);
        if count > 0 {
            terminal.wait_for(&["files that were not reached:"]);
        }
        for _ in 0..2 {
            until("the terminal is the dashboard's", || terminal.modes().alternate);
            terminal.signal(Signal::TSTP);
            until("it is stopped", || stopped(terminal.pid()));
            until("the terminal is the shell's", || {
                terminal.modes() == Modes::OF_A_SHELL && terminal.line_mode_is_back()
            });
            terminal.signal(Signal::CONT);
        }
        until("the terminal is the dashboard's", || {
            terminal.modes().alternate && !terminal.line_mode_is_back()
        });
        terminal.keys("3");
        terminal.wait_for(&["+ - span"]);
        terminal.keys("q");
        assert_eq!(terminal.ended(), Ended::Code(0), "{limit} and {count}");
        assert_eq!(terminal.modes(), Modes::OF_A_SHELL);
        assert!(terminal.line_mode_is_back());
    }
}

/// Depending on the limit, the runtime or the first frame fails.
#[test]
fn too_few_files_at_start_leave_the_terminal_as_it_was() {
    let program = gpumem_tui();
    for limit in 4..12 {
        let world = World::without_gpu();
        let few = few(limit);
        let args = ["-c", &few, program.to_str().unwrap()];
        let mut terminal = Terminal::start_program(Path::new("/bin/sh"), &world, &args, 80, 24, &[]);
        // With this limit it may run all the same.
        terminal.keys("q");
        assert_ne!(terminal.ended(), Ended::Never, "{limit}");
        assert_eq!(terminal.modes(), Modes::OF_A_SHELL, "{limit}");
        assert!(terminal.line_mode_is_back(), "{limit}");
    }
}

/// A program may raise the soft limit by itself.
#[test]
fn a_soft_limit_of_open_files_is_raised() {
    let world = World::without_gpu();
    let publishers = publishers(&world, 100);
    let report = report(&world, "ulimit -S -n 32 && exec \"$0\" \"$@\"");
    assert_eq!(report["unreadable_channels"], serde_json::json!([]));
    assert_eq!(report["processes"].as_array().unwrap().len(), publishers.len());
}
