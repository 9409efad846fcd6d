//! However the dashboard ends, its demo ends with it, and the terminal is restored wherever that is possible.

use gpumem_tests::{Background, Ended, Modes, Terminal, World, lives, stopped, until};
use rustix::process::{Pid, Signal};

/// Starts a dashboard with a running demo. Also returns the demo's pid.
fn with_demo(world: &World) -> (Terminal, u32) {
    let terminal = Terminal::start(world, &["demo", "train", "--device", "sim", "--pace", "100ms"], 80, 24);
    terminal.wait_for(&["Training step"]);
    let [child] = terminal.children()[..] else {
        unreachable!("one child: {:?}", terminal.children())
    };
    assert!(lives(child));
    (terminal, child)
}

/// Returns the exit code that shells use for a signal.
fn code_of(signal: Signal) -> u32 {
    128 + signal.as_raw() as u32
}

#[test]
fn a_handled_signal_ends_both_and_restores_the_terminal() {
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

/// Signals from the driver's threads, from timers, from an abort: each ends a program that does not handle it.
#[test]
fn an_unhandled_signal_ends_both_and_restores_the_terminal() {
    let known = [
        Signal::ABORT,
        Signal::ALARM,
        Signal::BUS,
        Signal::FPE,
        Signal::ILL,
        Signal::PROF,
        Signal::SEGV,
        Signal::SYS,
        Signal::TRAP,
        Signal::USR1,
        Signal::USR2,
        Signal::VTALARM,
        Signal::XCPU,
    ];
    for signal in known {
        let world = World::without_gpu();
        let (mut terminal, child) = with_demo(&world);
        assert!(terminal.modes().alternate && !terminal.line_mode_is_back());
        terminal.signal(signal);
        assert_eq!(terminal.ended(), Ended::Signal, "{signal:?}");
        assert_eq!(terminal.modes(), Modes::OF_A_SHELL, "{signal:?}");
        assert!(terminal.line_mode_is_back(), "{signal:?}");
        until("the demo is gone", || !lives(child));
    }
}

#[test]
fn a_driver_that_ends_the_program_restores_the_terminal() {
    let world = World::with_nvml("load_delay_ms=1000;load_exit=7");
    let mut terminal = Terminal::start(&world, &[], 80, 24);
    terminal.wait_for(&["1 Overview"]);
    assert!(terminal.modes().alternate);
    assert_eq!(terminal.ended(), Ended::Code(7));
    assert_eq!(terminal.modes(), Modes::OF_A_SHELL);
    assert!(terminal.line_mode_is_back());
    let text = terminal.text();
    assert!(text.contains("a library that was loaded"), "{text}");
}

#[test]
fn a_terminal_that_goes_away_ends_both() {
    let world = World::without_gpu();
    let (mut terminal, child) = with_demo(&world);
    terminal.hang_up();
    assert_eq!(terminal.ended(), Ended::Code(code_of(Signal::HUP)));
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
fn a_demo_stopped_by_the_user_ends_and_the_dashboard_stays() {
    let world = World::without_gpu();
    let (mut terminal, child) = with_demo(&world);
    terminal.keys("x");
    until("the demo is gone", || !lives(child));
    terminal.wait_for(&["stopped", "Enter start"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn a_killed_demo_is_reported() {
    let world = World::without_gpu();
    let (mut terminal, child) = with_demo(&world);
    let pid = Pid::from_raw(child as i32).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    terminal.wait_for(&["it was killed by signal 9"]);
    terminal.keys("q");
    // The dashboard was started for it.
    assert_eq!(terminal.ended(), Ended::Code(1));
}

#[test]
fn a_suspended_dashboard_comes_back_where_it_was() {
    let world = World::without_gpu();
    let (mut terminal, _) = with_demo(&world);
    terminal.signal(Signal::TSTP);
    until("it is stopped", || stopped(terminal.pid()));
    until("the terminal is the shell's", || {
        terminal.modes() == Modes::OF_A_SHELL && terminal.line_mode_is_back()
    });
    terminal.resize(100, 30);
    // To the whole job, as a shell does.
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

fn send(pid: u32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// Only the dashboard gets SIGCONT, however both came to be stopped.
#[test]
fn a_dashboard_that_goes_on_takes_its_demo_along() {
    for stop in [Signal::TSTP, Signal::STOP] {
        let world = World::without_gpu();
        let (mut terminal, child) = with_demo(&world);
        if stop == Signal::STOP {
            send(child, stop);
        }
        terminal.signal(stop);
        until("both are stopped", || stopped(terminal.pid()) && stopped(child));
        terminal.signal(Signal::CONT);
        until("the demo goes on", || !stopped(child));
        until("the terminal is the dashboard's", || terminal.modes().alternate);
        terminal.keys("q");
        assert_eq!(terminal.ended(), Ended::Code(0), "{stop:?}");
    }
}

/// A stopped process does not notice that its input has ended, so it has to be killed.
#[test]
fn a_demo_that_does_not_end_is_killed() {
    for key in ["q", "x"] {
        let world = World::without_gpu();
        let (mut terminal, child) = with_demo(&world);
        send(child, Signal::STOP);
        until("the demo is stopped", || stopped(child));
        let begin = std::time::Instant::now();
        terminal.keys(key);
        if key == "x" {
            terminal.wait_for(&["Enter start"]);
            terminal.keys("q");
        }
        terminal.wait_for(&["ending the demo ..."]);
        assert_eq!(terminal.ended(), Ended::Code(0));
        assert!(
            begin.elapsed() < std::time::Duration::from_secs(3),
            "{:?}",
            begin.elapsed()
        );
        assert!(
            !std::path::Path::new(&format!("/proc/{child}")).exists(),
            "not even a zombie is left"
        );
        assert!(!terminal.text().contains("ending"), "{}", terminal.text());
        assert_eq!(terminal.modes(), Modes::OF_A_SHELL);
    }
}

/// Without a shell nothing could resume the program, so the key only shows a message.
#[test]
fn ctrl_z_without_a_shell_is_refused_with_a_message() {
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
