//! A terminal that takes no output for a while, as behind a connection that hangs, is restored all the same.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gpumem_tests::{Ended, Modes, Terminal, World, lives, said, until};
use rustix::process::Signal;

/// Returns whether the terminal is left as a shell wants it. It takes nothing when the dashboard is asked to quit, and goes on before
/// the dashboard gives up. Meanwhile signals arrive, which a dashboard that is ending ignores.
fn comes_back(world: &World) -> bool {
    let mut terminal = Terminal::start(world, &[], 80, 24);
    terminal.wait_for(&["Space pause"]);
    terminal.stall();
    terminal.keys("q");
    // A third of the time that the dashboard waits.
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
    // On a slow machine the terminal may go on too late.
    assert!((0..5).any(|_| comes_back(&world)), "still the dashboard's screen");
}

/// The shell may have left stdout non-blocking, so that a write fails instead of waiting.
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
