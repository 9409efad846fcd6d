//! A machine without a GPU: a simulation runs and is labelled, and the terminal is restored.

use std::time::Duration;

use gpumem_tests::{Ended, Modes, Terminal, VIEWS, World, lives, until};

#[test]
fn a_simulation_runs_and_is_labelled_in_every_view() {
    let world = World::without_gpu();
    let mut terminal = Terminal::start(&world, &[], 120, 40);
    terminal.wait_for(&["no NVIDIA driver here", "gpumem-tui doctor says what is missing"]);
    terminal.wait_for(&[" SIMULATED ", "1 Overview"]);
    for (key, shown) in VIEWS {
        terminal.keys(key);
        terminal.wait_for(&[" SIMULATED ", shown]);
    }
    terminal.wait_for(&["Training step 2"]);
    let children = terminal.children();
    assert_eq!(children.len(), 1, "the demo is a process of its own");
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
    until("the demo is gone", || !children.iter().any(|&child| lives(child)));
}

/// The dashboard once said that it showed a demo, while the demo published nothing.
#[test]
fn no_demo_is_started_that_would_not_publish() {
    let world = World::without_gpu();
    let environment = [("GPUMEM_ALLOC_CONF", "publish:off")];
    let mut terminal = Terminal::start_with(&world, &[], 120, 40, &environment);
    terminal.wait_for(&["which is not on this machine", "No process publishes now"]);
    // A demo would have begun by now.
    assert!(!terminal.text().contains("showing a simulated"), "{}", terminal.text());
    assert!(terminal.children().is_empty());
    // A user who starts a demo all the same sees the reason.
    terminal.keys("7\r");
    terminal.wait_for(&["It does not publish: it is told publish:off"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn the_label_is_there_on_small_terminals_and_without_colours() {
    let world = World::without_gpu();
    let terminal = Terminal::start_with(&world, &["--ascii"], 80, 24, &[("NO_COLOR", "1")]);
    terminal.wait_for(&[" SIMULATED "]);
}

/// The bound allows for slow machines and unoptimised code: it is an order of magnitude above what the benchmark measures.
#[test]
fn the_first_frame_waits_for_nothing() {
    let world = World::without_gpu();
    let terminal = Terminal::start(&world, &[], 80, 24);
    terminal.wait_for(&["gpumem", "1 Overview"]);
    let took = terminal.first_output_after();
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn quitting_restores_the_terminal() {
    for key in ["q", "\x03"] {
        let world = World::without_gpu();
        let mut terminal = Terminal::start(&world, &[], 80, 24);
        terminal.wait_for(&["1 Overview"]);
        let taken = Modes {
            alternate: true,
            hidden_cursor: true,
            mouse: true,
            paste: true,
        };
        assert_eq!(terminal.modes(), taken);
        assert!(!terminal.line_mode_is_back(), "keys come unedited");
        terminal.keys(key);
        assert_eq!(terminal.ended(), Ended::Code(0));
        assert_eq!(terminal.modes(), Modes::OF_A_SHELL);
        assert!(terminal.line_mode_is_back());
        // Each mode that was switched on is switched off after the last drawing.
        let raw = String::from_utf8(terminal.raw()).unwrap();
        let last_frame = raw.rfind("\x1b[?2026h").unwrap();
        for mode in ["1000", "1002", "1006", "2004", "1049"] {
            assert!(raw[last_frame..].contains(&format!("\x1b[?{mode}l")), "{mode}");
        }
        assert!(
            raw.ends_with("\x1b[?25h\x1b[?1049l"),
            "nothing is written over the shell's screen"
        );
    }
}
