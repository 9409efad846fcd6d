//! Writes what a demo says: JSON lines for programs, text for people.

use std::io::Write;

use crate::bytes::format_bytes;
use crate::error::DemoError;
use crate::protocol::{Body, Line, Outcome, Start, Step};

/// Width that text is wrapped at.
const WIDTH: usize = 100;

/// Where a demo's lines go. Each is flushed: a reader sees a step when it is done.
pub(crate) struct Output<'a> {
    out: &'a mut dyn Write,
    demo: &'a str,
    json: bool,
}

impl<'a> Output<'a> {
    pub(crate) fn new(out: &'a mut dyn Write, demo: &'a str, json: bool) -> Output<'a> {
        Output { out, demo, json }
    }

    pub(crate) fn say(&mut self, body: Body) -> Result<(), DemoError> {
        let text = if self.json {
            let line = serde_json::to_string(&Line::new(self.demo, body)).map_err(std::io::Error::from)?;
            line + "\n"
        } else {
            text(&body)
        };
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(())
    }
}

fn text(body: &Body) -> String {
    match body {
        Body::Start(start) => start_text(start),
        Body::Step(step) => step_text(step),
        Body::Notice { message } => format!("note: {message}\n"),
        Body::Result { result } => result_text(result),
        // People read errors on stderr, where the program that embeds this library prints them.
        Body::Error { .. } => String::new(),
    }
}

fn start_text(start: &Start) -> String {
    let label = if start.simulated { "SIMULATED " } else { "" };
    let budget = format_bytes(start.budget);
    let channel = match &start.channel {
        Some(path) => format!("publishes to {path}"),
        None => "does not publish".to_owned(),
    };
    format!(
        "{label}{}, budget {budget}\n      process {} {channel}\n",
        start.device, start.pid
    )
}

fn step_text(step: &Step) -> String {
    let of = if step.steps == 0 {
        String::new()
    } else {
        format!("/{}", step.steps)
    };
    let mut text = format!("[{}{of}] {}\n", step.step, step.title);
    wrap(&step.detail, &mut text);
    if let Some(oom) = &step.oom {
        wrap(&oom.report, &mut text);
    }
    let s = &step.stats;
    let mut figures = format!(
        "allocated {}, reserved {}, free in cache {}, largest free block {}",
        format_bytes(s.allocated),
        format_bytes(s.reserved),
        format_bytes(s.free_total),
        format_bytes(s.largest_free),
    );
    if let Some(fragmentation) = s.external_fragmentation {
        figures += &format!(", external fragmentation {:.0} %", fragmentation * 100.0);
    }
    wrap(&figures, &mut text);
    for phase in &step.phases {
        text += &format!("      {:<10} allocated {}\n", phase.name, format_bytes(phase.allocated));
    }
    for choice in &step.choices {
        wrap(&format!("fix {}: {}", choice.name, choice.title), &mut text);
    }
    text
}

fn result_text(result: &Outcome) -> String {
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
    wrap(&parts.into_iter().flatten().collect::<Vec<_>>().join("; "), &mut text);
    text
}

fn wrap(paragraph: &str, text: &mut String) {
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if column == 0 || column + 1 + length > WIDTH {
            text.push_str(if column == 0 { "      " } else { "\n      " });
            column = 6;
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    if column != 0 {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_and_loses_no_word() {
        let words = "seven words of a rather long sentence ".repeat(12);
        let mut text = String::new();
        wrap(&words, &mut text);
        assert!(text.lines().all(|l| l.len() <= WIDTH && l.starts_with("      ")));
        assert_eq!(text.split_whitespace().count(), words.split_whitespace().count());
        let mut nothing = String::new();
        wrap("", &mut nothing);
        assert_eq!(nothing, "");
    }

    #[test]
    fn a_damaged_pattern_is_said_loudly() {
        let damaged = Outcome {
            patterns_verified: Some(false),
            reserved_at_end: 5,
            ..Outcome::default()
        };
        let text = result_text(&damaged);
        assert!(text.contains("DAMAGED") && text.contains("left behind"), "{text}");
    }

    #[test]
    fn simulated_is_said_first() {
        let start = Start {
            device: "Device".into(),
            simulated: true,
            ..Start::default()
        };
        assert!(start_text(&start).starts_with("SIMULATED Device"));
    }
}
