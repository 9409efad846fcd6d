//! Says how far a benchmark is, and stops it.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::time::Instant;

use super::error::{BenchError, Stop};
use super::hierarchy::Watch;
use super::protocol::{Body, Line, Progress, SCHEMA};
use crate::control::{Control, Input};

/// Where a benchmark's lines go.
pub(super) struct Lines<'a> {
    out: &'a mut dyn Write,
    bench: &'static str,
}

impl<'a> Lines<'a> {
    pub(super) fn new(out: &'a mut dyn Write, bench: &'static str) -> Lines<'a> {
        Lines { out, bench }
    }

    /// Writes one line, and flushes it.
    pub(super) fn say(&mut self, body: Body) -> Result<(), BenchError> {
        let line = Line {
            schema: SCHEMA.to_owned(),
            bench: self.bench.to_owned(),
            body,
        };
        let text = serde_json::to_string(&line).map_err(std::io::Error::from)? + "\n";
        self.out.write_all(text.as_bytes())?;
        Ok(self.out.flush()?)
    }
}

/// Watches a benchmark for signals and its parent, and reports its progress: by lines when steered, else on stderr if that is a
/// terminal.
pub(super) struct Watcher<'a, 'b> {
    pub(super) control: &'a Control,
    pub(super) lines: Option<&'a mut Lines<'b>>,
    pub(super) terminal: Option<ProgressLine>,
}

impl Watch for Watcher<'_, '_> {
    fn progress(&mut self, progress: &Progress) -> Result<(), Stop> {
        self.go_on()?;
        if let Some(lines) = &mut self.lines {
            lines.say(Body::Progress(progress.clone()))?;
        }
        if let Some(terminal) = &self.terminal {
            terminal.show(progress);
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), Stop> {
        loop {
            match self.control.wait_until(Instant::now()) {
                Some(Input::End(end)) => return Err(Stop::End(end)),
                Some(Input::Command(_) | Input::Invalid(_)) => {}
                None => return Ok(()),
            }
        }
    }
}

/// A line on stderr that is written anew with each step, and erased at the end.
#[derive(Debug)]
pub(super) struct ProgressLine {
    /// Columns written last.
    written: RefCell<usize>,
}

impl ProgressLine {
    /// Returns `None` if stderr is not a terminal.
    pub(super) fn on_terminal() -> Option<ProgressLine> {
        std::io::stderr().is_terminal().then(|| ProgressLine {
            written: RefCell::new(0),
        })
    }

    fn show(&self, progress: &Progress) {
        let line = progress_text(progress);
        let columns = line.chars().count();
        let written = self.written.replace(columns);
        let blanks = " ".repeat(written.saturating_sub(columns));
        // If stderr is closed, nobody wants to know.
        let _ = write!(std::io::stderr(), "\r{line}{blanks}\r{line}");
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        let blanks = " ".repeat(self.written.take());
        let _ = write!(std::io::stderr(), "\r{blanks}\r");
    }
}

/// Returns the progress in at most 79 columns, which a terminal of 80 does not wrap.
fn progress_text(progress: &Progress) -> String {
    let left = progress.left_ms.div_ceil(1000);
    let text = format!(
        "{}/{} {}, about {left} s left",
        progress.done.saturating_add(1),
        progress.of,
        progress.what
    );
    text.chars().take(79).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_fits_on_a_line() {
        let progress = Progress {
            done: 11,
            of: 61,
            what: "latency of L2 cache, near".to_owned(),
            left_ms: 6200,
        };
        assert_eq!(
            progress_text(&progress),
            "12/61 latency of L2 cache, near, about 7 s left"
        );
        let long = Progress {
            what: "x".repeat(100),
            done: u64::MAX,
            ..progress
        };
        assert_eq!(progress_text(&long).chars().count(), 79);
    }
}
