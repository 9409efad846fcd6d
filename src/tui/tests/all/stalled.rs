//! A terminal that takes nothing for a while, as behind a connection that hangs: it comes back all the same.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gpumem_tests::{Ended, Modes, Terminal, World, lives, said, until};
use rustix::process::Signal;

/// Whether a dashboard's terminal is left as a shell wants it that takes nothing when the dashboard ends, and then, in time, goes on.
/// Meanwhile signals arrive that mean nothing to a dashboard which ends.
fn comes_back(world: &World) -> bool {
    let mut terminal = Terminal::start(world, &[], 80, 24);
    terminal.wait_for(&["Space pause"]);
    terminal.stall();
    terminal.keys("q");
    // A third of the time that it may take.
    for _ in 0..50 {
        terminal.signal(Signal::WINCH);
        std::thread::sleep(Duration::from_millis(2));
    }
    terminal.go_on();
    assert_eq!(terminal.ended(), Ended::Code(0));
    assert!(terminal.line_mode_is_back());
    terminal.modes() == Modes::OF_A_SHELL
}

#[test]
fn a_signal_does_not_end_the_wait_for_a_slow_terminal() {
    let world = World::without_gpu();
    // On a slow machine it may be too late.
    assert!((0..5).any(|_| comes_back(&world)), "still the dashboard's screen");
}

/// Its shell may have left its stdout in a mode in which a write does not wait but fails.
#[test]
fn a_terminal_that_cannot_be_entered_is_as_it_was() {
    let world = World::without_gpu();
    let terminal = Terminal::start_program(Path::new("sleep"), &world, &["600"], 80, 24, &[]);
    terminal.stall();
    let mut dashboard = world.command(&[]);
    dashboard.stdin(terminal.tty()).stdout(terminal.tty());
    let dashboard = dashboard.stderr(Stdio::piped()).spawn().unwrap();
    until("it gives up", || !lives(dashboard.id()));
    let output = dashboard.wait_with_output().unwrap();
    let complaint = said(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("cannot use this terminal"), "{complaint}");
    assert!(terminal.line_mode_is_back());
    terminal.go_on();
    assert_eq!(terminal.modes(), Modes::OF_A_SHELL);
}
