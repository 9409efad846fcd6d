//! Writes the output of a demo: JSON lines for programs, text for people.

use std::io::Write;

use gpumem_text::units::bytes_to_pib;

use crate::error::DemoError;
use crate::paragraph::{WIDTH, paragraph};
use crate::protocol::{Body, Line, Outcome, Start, Step};

/// The narrowest width that text is wrapped at. Few words are longer.
const LEAST: usize = 20;
/// The indent of text, in columns.
const INDENT: usize = 6;

/// Writes a demo's lines. Each is flushed, so that a reader sees a step as soon as it is done.
pub(crate) struct Output<'a> {
    out: &'a mut dyn Write,
    demo: &'a str,
    json: bool,
    /// Returns the current width to wrap at, because terminals are resized.
    width: fn() -> usize,
}

impl<'a> Output<'a> {
    pub(crate) fn new(out: &'a mut dyn Write, demo: &'a str, json: bool, width: fn() -> usize) -> Output<'a> {
        Output { out, demo, json, width }
    }

    pub(crate) fn say(&mut self, body: Body) -> Result<(), DemoError> {
        let text = if self.json {
            let line = serde_json::to_string(&Line::new(self.demo, body)).map_err(std::io::Error::from)?;
            line + "\n"
        } else {
            text(&body, (self.width)())
        };
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(())
    }
}

/// Returns the width to wrap at on stdout.
pub(crate) fn width_of_stdout() -> usize {
    // This fails if stdout is not a terminal.
    width_in(rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| size.ws_col))
}

/// Returns the width to wrap at in a terminal of `columns`; 0 stands for an unknown width or no terminal.
fn width_in(columns: u16) -> usize {
    match columns {
        0 => WIDTH,
        columns => usize::from(columns).clamp(LEAST, WIDTH),
    }
}

fn text(body: &Body, width: usize) -> String {
    match body {
        Body::Start(start) => start_text(start),
        Body::Step(step) => step_text(step, width),
        Body::Notice { message } => format!("note: {message}\n"),
        Body::Result { result } => result_text(result, width),
        // The program that embeds this library prints errors on stderr.
        Body::Error { .. } => String::new(),
    }
}

fn start_text(start: &Start) -> String {
    let label = if start.simulated { "SIMULATED " } else { "" };
    let budget = match start.budget {
        Some(bytes) => format!("budget {}", bytes_to_pib(bytes)),
        None => "no budget".to_owned(),
    };
    let channel = match &start.channel {
        Some(path) => format!("publishes to {path}"),
        None => "does not publish".to_owned(),
    };
    format!(
        "{label}{}, {budget}\n      process {} {channel}\n",
        start.device, start.pid
    )
}

fn step_text(step: &Step, width: usize) -> String {
    let of = if step.steps == 0 {
        String::new()
    } else {
        format!("/{}", step.steps)
    };
    let mut text = format!("[{}{of}] {}\n", step.step, step.title);
    wrap(&step.detail, width, &mut text);
    if let Some(oom) = &step.oom {
        wrap(&oom.report, width, &mut text);
    }
    let s = &step.stats;
    let mut figures = format!(
        "allocated {}, reserved {}, free in cache {}, largest free block {}",
        bytes_to_pib(s.allocated),
        bytes_to_pib(s.reserved),
        bytes_to_pib(s.free_total),
        bytes_to_pib(s.largest_free),
    );
    if let Some(fragmentation) = s.external_fragmentation {
        figures += &format!(", external fragmentation {:.0} %", fragmentation * 100.0);
    }
    // A demo whose memory is not the allocator's has nothing to say here.
    if s.peak_reserved > 0 {
        wrap(&figures, width, &mut text);
    }
    for phase in &step.phases {
        text += &format!("      {:<10} allocated {}\n", phase.name, bytes_to_pib(phase.allocated));
    }
    for choice in &step.choices {
        wrap(&format!("fix {}: {}", choice.name, choice.title), width, &mut text);
    }
    text
}

fn result_text(result: &Outcome, width: usize) -> String {
    let said = |value: Option<bool>, yes: &'static str, no: &'static str| value.map(|v| if v { yes } else { no });
    let parts = [
        said(
            result.failed_before,
            "the large request failed before the fix",
            "the large request did not fail before",
        ),
        said(result.succeeded_after, "succeeded after it", "failed after it too"),
        said(
            result.patterns_verified,
            "every pattern was intact",
            "PATTERNS WERE DAMAGED",
        ),
        (result.reserved_at_end != 0)
            .then_some("memory was left behind")
            .or(Some("all memory was given back")),
    ];
    let fix = result
        .fix
        .as_ref()
        .map(|fix| format!(" (fix: {fix})"))
        .unwrap_or_default();
    let mut text = format!("done{fix}\n");
    wrap(
        &parts.into_iter().flatten().collect::<Vec<_>>().join("; "),
        width,
        &mut text,
    );
    text
}

/// Adds a paragraph of a step, unless it is empty.
fn wrap(words: &str, width: usize, text: &mut String) {
    if !words.trim().is_empty() {
        paragraph(text, &" ".repeat(INDENT), words, width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_text_loses_no_word() {
        let words = "seven words of a rather long sentence ".repeat(12);
        for width in [LEAST, 80, WIDTH] {
            let mut text = String::new();
            wrap(&words, width, &mut text);
            assert!(text.lines().all(|l| l.len() <= width && l.starts_with("      ")));
            assert!(text.lines().any(|l| l.len() + 9 > width), "lines are filled: {text}");
            assert_eq!(text.split_whitespace().count(), words.split_whitespace().count());
        }
        let mut nothing = String::new();
        wrap("", WIDTH, &mut nothing);
        assert_eq!(nothing, "");
    }

    #[test]
    fn text_is_as_wide_as_the_terminal_within_limits() {
        let widths = [0, 1, 20, 80, 100, 101, u16::MAX].map(width_in);
        assert_eq!(widths, [100, 20, 20, 80, 100, 100, 100]);
    }

    #[test]
    fn damaged_pattern_is_reported_in_capitals() {
        let damaged = Outcome {
            patterns_verified: Some(false),
            reserved_at_end: 5,
            ..Outcome::default()
        };
        let text = result_text(&damaged, WIDTH);
        assert!(text.contains("DAMAGED") && text.contains("left behind"), "{text}");
    }

    #[test]
    fn simulated_is_in_the_first_line() {
        let start = Start {
            device: "Device".into(),
            simulated: true,
            ..Start::default()
        };
        assert!(start_text(&start).starts_with("SIMULATED Device, no budget\n"));
        let limited = Start {
            budget: Some(512 << 20),
            ..start
        };
        assert!(start_text(&limited).starts_with("SIMULATED Device, budget 512 MiB\n"));
    }
}
