//! However the dashboard ends, its demo ends with it; and the terminal comes back wherever that is possible.
#![allow(clippy::unwrap_used, missing_docs)]

use gpumem_tests::{Background, Ended, Modes, Terminal, World, lives, until};
use rustix::process::{Pid, Signal};

/// A dashboard whose demo is at work, and the demo's pid.
fn with_demo(world: &World) -> (Terminal, u32) {
    let terminal = Terminal::start(world, &["demo", "train", "--device", "sim", "--pace", "100ms"], 80, 24);
    terminal.wait_for(&["Training step"]);
    let [child] = terminal.children()[..] else {
        unreachable!("one child: {:?}", terminal.children())
    };
    assert!(lives(child));
    (terminal, child)
}

/// By which exit code `--help` says that a signal shows.
fn code_of(signal: Signal) -> u32 {
    let help = World::without_gpu().command(&["--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("128 + n  ended by signal n"), "{help}");
    128 + signal.as_raw() as u32
}

#[test]
fn a_signal_ends_both_and_gives_the_terminal_back() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let world = World::without_gpu();
        let (mut terminal, child) = with_demo(&world);
        assert!(terminal.modes().alternate);
        terminal.signal(signal);
        assert_eq!(terminal.ended(), Ended::Code(code_of(signal)), "{signal:?}");
        assert_eq!(terminal.modes(), Modes::OF_A_SHELL, "{signal:?}");
        assert!(terminal.line_mode_is_back(), "{signal:?}");
        until("the demo is gone", || !lives(child));
    }
}

#[test]
fn a_terminal_that_goes_away_ends_both() {
    let world = World::without_gpu();
    let (mut terminal, child) = with_demo(&world);
    terminal.hang_up();
    assert!(matches!(terminal.ended(), Ended::Code(_)), "by itself, and in time");
    until("the demo is gone", || !lives(child));
}

#[test]
fn a_dashboard_that_is_killed_takes_its_demo_along() {
    let world = World::without_gpu();
    let (mut terminal, child) = with_demo(&world);
    terminal.signal(Signal::KILL);
    assert_eq!(terminal.ended(), Ended::Signal);
    until("the demo is gone", || !lives(child));
}

#[test]
fn a_demo_that_is_stopped_by_the_user_goes_and_the_dashboard_stays() {
    let world = World::without_gpu();
    let (mut terminal, child) = with_demo(&world);
    terminal.keys("x");
    until("the demo is gone", || !lives(child));
    terminal.wait_for(&["✓ done", "Enter start"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn a_demo_that_is_killed_is_told_of() {
    let world = World::without_gpu();
    let (mut terminal, child) = with_demo(&world);
    let pid = Pid::from_raw(child as i32).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    terminal.wait_for(&["it was killed by signal 9"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn a_suspended_dashboard_comes_back_where_it_was() {
    let world = World::without_gpu();
    let (mut terminal, _) = with_demo(&world);
    terminal.signal(Signal::TSTP);
    let stopped = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    until("it is stopped", || stopped(terminal.pid()));
    until("the terminal is the shell's", || {
        terminal.modes() == Modes::OF_A_SHELL && terminal.line_mode_is_back()
    });
    terminal.resize(100, 30);
    // As a shell does: to the whole job.
    let group = Pid::from_raw(terminal.pid() as i32).unwrap();
    rustix::process::kill_process_group(group, Signal::CONT).unwrap();
    until("the terminal is the dashboard's", || terminal.modes().alternate);
    let before = terminal.text();
    terminal.wait("the demo goes on", |screen| screen != before);
    terminal.keys("3");
    terminal.wait_for(&["last 60 s", "? Help"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

/// The key does nothing where nobody could let the program go on.
#[test]
fn ctrl_z_without_a_shell_is_refused_in_words() {
    let world = World::without_gpu();
    let (mut terminal, _) = with_demo(&world);
    terminal.keys("\x1a");
    terminal.wait_for(&["no shell to return to"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn a_headless_demo_ends_by_signals_with_their_codes_too() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let world = World::without_gpu();
        let mut demo = Background::training(&world);
        demo.signal(signal);
        assert_eq!(demo.ended(), Ended::Code(code_of(signal)));
    }
}
