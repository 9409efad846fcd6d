//! A report of triage as lines of text, for the command and for the view.

use gpumem_text::{clean, units};
use gpumem_triage::{Allocator, Figures, Report};

use crate::words;
use crate::wrap::wrap;

/// What a line is, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The verdict.
    Verdict,
    /// A sentence.
    Text,
    /// Words before a list.
    Heading,
    /// A quote of the log.
    Quote,
    /// Something to type.
    Typed,
    /// An empty line.
    Empty,
}

/// A line of at most the given columns, except what is typed: that must not be broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// What it is.
    pub part: Part,
    /// Its text, cleaned.
    pub text: String,
}

impl Line {
    /// Returns an empty line.
    pub(crate) fn empty() -> Line {
        Line {
            part: Part::Empty,
            text: String::new(),
        }
    }

    /// Returns words before a list.
    pub(crate) fn heading(text: &str) -> Line {
        Line {
            part: Part::Heading,
            text: text.to_owned(),
        }
    }

    /// Returns the lines of a sentence of our own.
    pub(crate) fn text(text: &str, room: u16) -> impl Iterator<Item = Line> {
        wrap(text, room.clamp(20, WIDEST))
            .into_iter()
            .map(|text| Line { part: Part::Text, text })
    }
}

/// Lines are not longer than this, or they cannot be read.
const WIDEST: u16 = 110;

/// Formats a report.
pub(crate) fn lines(report: &Report, room: u16) -> Vec<Line> {
    let mut out = Out {
        lines: Vec::new(),
        room: room.min(WIDEST),
    };
    out.say(Part::Verdict, "", &words::sentence(report.verdict.words()));
    if !matches!(report.allocator, Allocator::None) {
        out.say(Part::Text, "Which memory: ", report.allocator.words());
    }
    out.say(Part::Text, "Why: ", &report.why);
    if let Some(figures) = figures(&report.figures) {
        out.say(Part::Text, "Figures: ", &figures);
    }
    if let Some(evidence) = &report.evidence {
        let who = match (&evidence.rank, &evidence.source) {
            (Some(rank), _) => format!(", rank {rank}"),
            (None, Some(source)) => format!(", {source}"),
            (None, None) => String::new(),
        };
        out.say(Part::Quote, &format!("Line {}{who}: ", evidence.line), &evidence.text);
    }
    if report.further > 0 {
        let lines = units::plural(report.further as u64, "other line");
        let say = if report.further == 1 { "says" } else { "say" };
        out.say(
            Part::Text,
            "",
            &format!("{lines} {say} that memory failed, and may follow from it"),
        );
    }
    if !report.fixes.is_empty() {
        out.heading("What helps, in order");
        for (number, fix) in report.fixes.iter().enumerate() {
            out.say(Part::Text, &format!("{}. ", number + 1), &fix.text);
            if let Some(typed) = &fix.line {
                out.lines.push(Line {
                    part: Part::Typed,
                    text: format!("     {}", clean(typed)),
                });
            }
        }
    }
    out.list("Not in the text", &report.missing);
    out.list("Beware", &report.notes);
    out.lines
}

/// Says all figures in one sentence; `None` if there are none.
fn figures(figures: &Figures) -> Option<String> {
    let mut all = Vec::new();
    let mut add = |words: &str, bytes: Option<u64>| {
        if let Some(bytes) = bytes {
            all.push(format!("{words} {}", units::bytes(bytes)));
        }
    };
    add("tried to allocate", figures.requested);
    add("free", figures.free);
    add("total", figures.total);
    add("allocated", figures.allocated);
    add("cached", figures.unallocated);
    add("in private pools", figures.private_pools);
    add("allowed", figures.allowed);
    add("this process", figures.this_process);
    let others: u64 = figures
        .others
        .iter()
        .fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes));
    add("other processes", Some(others).filter(|bytes| *bytes > 0));
    (!all.is_empty()).then(|| all.join(", "))
}

struct Out {
    lines: Vec<Line>,
    room: u16,
}

impl Out {
    /// Adds a sentence after `begin`, under which its further lines are indented.
    fn say(&mut self, part: Part, begin: &str, text: &str) {
        let text = clean(text);
        let whole = format!("{}{text}", clean(begin));
        let indent = "   ";
        let room = self.room.saturating_sub(3).max(20);
        for (at, line) in wrap(&whole, room).into_iter().enumerate() {
            let text = if at == 0 { line } else { format!("{indent}{line}") };
            self.lines.push(Line { part, text });
        }
    }

    fn heading(&mut self, text: &str) {
        self.lines.extend([Line::empty(), Line::heading(text)]);
    }

    fn list(&mut self, heading: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.heading(heading);
        for item in items {
            self.say(Part::Text, "- ", item);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use gpumem_triage::triage;

    #[test]
    fn report_is_lines_that_fit() {
        let report = triage(
            "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 139.80 GiB \
             of which 3.29 GiB is free. Including non-PyTorch memory, this process has 136.51 GiB memory in use. Of the allocated \
             memory 110.50 GiB is allocated by PyTorch, and 25.50 GiB is reserved by PyTorch but unallocated.",
        );
        for room in [20, 80, 200] {
            let lines = lines(&report, room);
            let typed = |line: &&Line| line.part == Part::Typed;
            assert_eq!(
                lines.iter().find(typed).unwrap().text,
                "     PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            );
            for line in lines.iter().filter(|line| !typed(line)) {
                assert!(
                    crate::wrap::fits(&line.text, usize::from(room.max(26))),
                    "{room}: {}",
                    line.text
                );
            }
        }
        let text: Vec<_> = lines(&report, 80).into_iter().map(|line| line.text).collect();
        insta::assert_snapshot!(text.join("\n"));
    }
}
