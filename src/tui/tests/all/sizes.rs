//! Terminals of any size, and terminals without colours or Unicode: the dashboard starts, runs and quits.

use gpumem_tests::{Background, Ended, Modes, Terminal, VIEWS, World, until};
use rustix::termios::{Winsize, tcsetwinsize};

#[test]
fn it_starts_and_runs_at_any_size() {
    for (columns, rows) in [(1, 1), (2, 2), (20, 5), (80, 24), (200, 50), (500, 3), (3, 200)] {
        let world = World::without_gpu();
        let args = ["demo", "fragmentation", "--device", "sim", "--budget", "256M"];
        let mut terminal = Terminal::start(&world, &args, columns, rows);
        until("it runs", || !terminal.children().is_empty());
        // Every view, with every popup that opens over it.
        for view in ["1", "2", "3", "7"] {
            for popup in ["?", "m", "s", "/", "f"] {
                terminal.keys(view);
                terminal.keys(popup);
                terminal.keys("\x1b[A\x1b[B\x1b[5~\x1b[6~\x1b[F\x1b[H");
                terminal.keys("\x1b\x1b");
            }
        }
        terminal.resize(80, 24);
        terminal.keys("7");
        terminal.wait_for(&["1 of 6", "waits for you"]);
        terminal.resize(columns, rows);
        terminal.keys("q");
        assert_eq!(terminal.ended(), Ended::Code(0), "{columns}x{rows}");
        assert_eq!(terminal.modes(), Modes::OF_A_SHELL, "{columns}x{rows}");
    }
}

/// Returns the most memory that a process has held, in MiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// A size that a terminal reports is believed only up to what a screen can have.
#[test]
fn an_impossible_size_takes_no_memory() {
    let world = World::without_gpu();
    let mut terminal = Terminal::start(&world, &[], 80, 24);
    terminal.wait_for(&["SIMULATED", "STATE"]);
    let claim = |columns, rows| {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // The test's own screen keeps its size: it would take that memory itself.
        tcsetwinsize(terminal.tty(), size).unwrap();
    };
    for (columns, rows) in [(65535, 65535), (20000, 20000), (65535, 1), (1, 65535)] {
        let before = terminal.written();
        claim(columns, rows);
        until("it is drawn", || terminal.written() > before);
    }
    claim(80, 24);
    let peak = peak(terminal.pid());
    assert!(peak < 100, "{peak} MiB");
    for (view, shown) in VIEWS {
        terminal.keys(view);
        terminal.wait_for(&[shown]);
    }
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
    assert_eq!(terminal.modes(), Modes::OF_A_SHELL);
}

#[test]
fn a_storm_of_sizes_is_survived_in_every_view_with_popups_open() {
    let sizes = [
        (0, 0),
        (1, 1),
        (200, 50),
        (2, 2),
        (80, 0),
        (0, 24),
        (20, 5),
        (1, 50),
        (300, 1),
        (79, 23),
    ];
    let world = World::without_gpu();
    let args = ["demo", "fragmentation", "--device", "sim", "--budget", "256M"];
    let mut terminal = Terminal::start(&world, &args, 80, 24);
    for step in ["1 of 6", "2 of 6", "3 of 6"] {
        terminal.wait_for(&[step, "waits for you"]);
        if step != "3 of 6" {
            terminal.keys("\r");
        }
    }
    for (view, shown) in VIEWS {
        for (popup, close, title) in [
            ("?", "?", "Everywhere"),
            ("m", "m", "Findings"),
            ("s", "s", "Sort by"),
            ("f", "f", "Choose a fix"),
        ] {
            terminal.keys(view);
            terminal.wait_for(&[shown]);
            terminal.keys(popup);
            terminal.wait_for(&[title]);
            for (columns, rows) in sizes.into_iter().cycle().take(50) {
                terminal.resize(columns, rows);
            }
            terminal.resize(80, 24);
            terminal.wait_for(&[title]);
            terminal.keys(close);
            terminal.wait("the popup is closed", |screen| {
                !screen.contains(title) && screen.contains(shown)
            });
        }
    }
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

/// Returns the parameters of every SGR sequence, which sets colours and other attributes.
fn attributes(raw: &[u8]) -> Vec<Vec<u16>> {
    let text = String::from_utf8_lossy(raw);
    let sequences = text.split("\x1b[").skip(1);
    let attributes = sequences.filter_map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || ";:".contains(c)))?;
        rest[end..].starts_with('m').then(|| rest[..end].to_owned())
    });
    let numbers = |list: String| list.split([';', ':']).map(|n| n.parse().unwrap_or(0)).collect();
    attributes.map(numbers).collect()
}

/// Arguments and environment of a run.
type Given = (&'static [&'static str], &'static [(&'static str, &'static str)]);

/// Returns everything that is drawn while every view and popup is opened.
fn drawn(world: &World, args: &[&str], environment: &[(&str, &str)]) -> Vec<u8> {
    let mut terminal = Terminal::start_with(world, args, 80, 24, environment);
    terminal.wait_for(&["SIMULATED", "Space pause"]);
    for (view, shown) in [("2", "1 cell ="), ("3", "last 60 s"), ("7", "Demos"), ("1", "STATE")] {
        terminal.keys(view);
        // The header shortens the label to `SIM` where there is little space.
        terminal.wait_for(&[shown, "SIM"]);
    }
    terminal.keys("s");
    terminal.wait_for(&["Sort by"]);
    terminal.keys("s?");
    terminal.wait_for(&["Everywhere"]);
    terminal.keys("?q");
    assert_eq!(terminal.ended(), Ended::Code(0));
    terminal.raw()
}

/// Counts the sequences that set a colour of 8 or 16, of 256, and of all 24 bits.
fn colours(raw: &[u8]) -> [usize; 3] {
    let mut count = [0; 3];
    for numbers in attributes(raw) {
        let mut rest = &numbers[..];
        while let [first, after @ ..] = rest {
            rest = after;
            match (first, after) {
                (38 | 48 | 58, [5, n, after @ ..]) => {
                    count[usize::from(*n >= 16)] += 1;
                    rest = after;
                }
                (38 | 48 | 58, [2, _, _, _, after @ ..]) => {
                    count[2] += 1;
                    rest = after;
                }
                (30..=37 | 40..=47 | 90..=97 | 100..=107, _) => count[0] += 1,
                _ => {}
            }
        }
    }
    count
}

#[test]
fn colours_are_those_that_were_asked_for() {
    let none: &'static [(&str, &str)] = &[];
    let cases: [(Given, [bool; 3]); 9] = [
        ((&["--color", "mono"], none), [false, false, false]),
        ((&[], &[("NO_COLOR", "1")]), [false, false, false]),
        ((&[], &[("TERM", "dumb")]), [false, false, false]),
        ((&["--color", "16"], none), [true, false, false]),
        ((&[], &[("TERM", "xterm"), ("COLORTERM", "")]), [true, false, false]),
        ((&["--color", "256"], none), [false, true, false]),
        ((&[], &[("COLORTERM", "")]), [false, true, false]),
        (
            (&["--color", "true"], &[("NO_COLOR", "1"), ("TERM", "dumb")]),
            [false, false, true],
        ),
        ((&[], none), [false, false, true]),
    ];
    let world = &World::without_gpu();
    let _publisher = Background::fragmented(world);
    std::thread::scope(|scope| {
        for ((args, environment), expected) in cases {
            scope.spawn(move || {
                let found = colours(&drawn(world, args, environment)).map(|n| n > 0);
                assert_eq!(found, expected, "{args:?} {environment:?}: of 16, of 256, of all");
            });
        }
    });
}

#[test]
fn ascii_is_ascii() {
    let cases: [Given; 3] = [
        (&["--ascii"], &[]),
        (&[], &[("LC_ALL", "C")]),
        (&["--ascii", "--color", "mono"], &[]),
    ];
    let world = &World::without_gpu();
    let _publisher = Background::fragmented(world);
    std::thread::scope(|scope| {
        for (args, environment) in cases {
            scope.spawn(move || {
                let raw = drawn(world, args, environment);
                let other = raw.iter().position(|byte| !byte.is_ascii());
                let around = other.map(|at| String::from_utf8_lossy(&raw[at.saturating_sub(40)..=at]).into_owned());
                assert_eq!(around, None, "{args:?} {environment:?}");
            });
        }
    });
}
