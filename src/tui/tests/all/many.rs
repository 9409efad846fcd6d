//! More channels than a program may have files open, and few files to be had at all.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gpumem_channel::Publisher;
use gpumem_tests::{Ended, Modes, Terminal, World, gpumem_tui, publish, stopped, until, uuid_of};
use rustix::process::Signal;

/// A shell's line that runs what follows with at most so many open files.
fn few(limit: u32) -> String {
    format!("ulimit -n {limit} && exec \"$0\" \"$@\"")
}

/// What `--json` says when it is run by such a line.
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
    // Not even the folder can be looked into then: it is no reason to forget what is read.
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

/// Whatever fails: the runtime, the first frame.
#[test]
fn too_few_files_to_begin_with_leave_the_terminal_as_it_was() {
    let program = gpumem_tui();
    for limit in 4..12 {
        let world = World::without_gpu();
        let few = few(limit);
        let args = ["-c", &few, program.to_str().unwrap()];
        let mut terminal = Terminal::start_program(Path::new("/bin/sh"), &world, &args, 80, 24, &[]);
        // Where it runs all the same.
        terminal.keys("q");
        assert_ne!(terminal.ended(), Ended::Never, "{limit}");
        assert_eq!(terminal.modes(), Modes::OF_A_SHELL, "{limit}");
        assert!(terminal.line_mode_is_back(), "{limit}");
    }
}

/// The limit is the soft one, which a program may raise by itself.
#[test]
fn a_limit_that_may_be_raised_is() {
    let world = World::without_gpu();
    let publishers = publishers(&world, 100);
    let report = report(&world, "ulimit -S -n 32 && exec \"$0\" \"$@\"");
    assert_eq!(report["unreadable_channels"], serde_json::json!([]));
    assert_eq!(report["processes"].as_array().unwrap().len(), publishers.len());
}
