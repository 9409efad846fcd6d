//! A rehearsal of 3 AM: 8 GPUs, 35 processes, one of which runs out of memory. Culprit, cause and fix in three keys at most, at 80x24.
//!
//! `GPUMEM_RECORD=FOLDER cargo test -p gpumem-tui --test all on_call` writes the keys and the screens that followed them to that folder.
//! Those of one run are in `tests/rehearsals`.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gpumem_tests::{Connection, Ended, Terminal, World, fail, publish_named, uuid_of};

const MIB: u64 = 1 << 20;

/// A log of keys and screens.
struct Log {
    text: String,
    began: Instant,
}

impl Log {
    fn new() -> Log {
        Log {
            text: String::new(),
            began: Instant::now(),
        }
    }

    fn note(&mut self, what: &str, terminal: &Terminal) {
        let seconds = self.began.elapsed().as_secs_f64();
        writeln!(self.text, "{what} ({seconds:.1} s)\n").unwrap();
        for line in terminal.text().lines() {
            writeln!(self.text, "    {}", line.trim_end()).unwrap();
        }
        self.text.push('\n');
    }

    fn keep(&self, name: &str) {
        if let Some(folder) = std::env::var_os("GPUMEM_RECORD") {
            std::fs::write(PathBuf::from(folder).join(name), &self.text).unwrap();
        }
    }
}

/// Starts the dashboard with `start`, lets a process fail, and finds out why with two keys.
fn rehearse(name: &str, start: impl FnOnce(&World) -> Terminal) {
    let uuids = (0..8).map(|gpu| format!("gpu{gpu}.used=70G"));
    let scenario: Vec<String> = std::iter::once("gpus=8".to_owned()).chain(uuids).collect();
    let world = World::with_nvml(&scenario.join(";"));
    let mut publishers: Vec<_> = (0..35)
        .map(|number| publish_named(&world, uuid_of(number % 8), &format!("job-{number}")))
        .collect();
    let mut terminal = start(&world);
    terminal.wait_for(&["of 35"]);
    let mut log = Log::new();
    log.note("job-29 fails now; before that", &terminal);
    fail(&mut publishers[29], 82, 218 * MIB);
    // Without a key: the culprit is the first row, whatever its size.
    terminal.wait("the culprit on top", |screen| {
        let mut lines = screen
            .lines()
            .skip_while(|line| !line.contains("JOB/COMMAND") && !line.contains("COMMAND"));
        lines
            .nth(1)
            .is_some_and(|row| row.contains("job-29") && row.contains("OOM x82"))
    });
    log.note("no key: the culprit", &terminal);
    // One key: cause and fix.
    terminal.keys("6");
    terminal.wait_for(&["Triage: ", "GPU 5)", "218 MiB", "What helps, in order", "1. "]);
    log.note("6: cause and fix", &terminal);
    println!("{name}: cause and fix {:?} after the failure", log.began.elapsed());
    // The finding leads there, too, and to the blocks.
    terminal.keys("1m\r");
    terminal.wait_for(&["Triage: ", "GPU 5)"]);
    terminal.keys("\r");
    terminal.wait_for(&["1 cell = "]);
    log.note("Enter: its blocks", &terminal);
    log.keep(name);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn culprit_cause_and_fix_take_three_keys() {
    rehearse("local.txt", |world| Terminal::start(world, &[], 80, 24));
}

/// The same over a bad line: 20 kB a second, and 200 ms each way.
#[test]
fn culprit_cause_and_fix_take_three_keys_over_a_bad_line() {
    let connection = Connection {
        bytes_per_second: 20_000,
        latency: Duration::from_millis(200),
    };
    rehearse("bad-line.txt", |world| {
        Terminal::start_over(connection, world, &[], 80, 24)
    });
}
