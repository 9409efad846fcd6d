//! Reads logs and messages of programs that ran out of memory, and says which allocator failed, why, and what to do.
//!
//! [`triage`] and [`triage_log`] read any text: a message, a traceback, the logs of several ranks. They first find out *whose* memory failed (the GPU's, the
//! host's, `/dev/shm`, a kernel's on-chip memory, ...), then the figures, and from them the [`Verdict`]. Where a text does not carry a
//! cause the verdict is [`Verdict::Incomplete`], and the report says what is missing and how to get it.
//!
//! ```
//! use gpumem_triage::{Verdict, triage};
//!
//! let report = triage(
//!     "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which \
//!      3.29 GiB is free. Including non-PyTorch memory, this process has 136.51 GiB memory in use. Of the allocated memory 110.50 GiB \
//!      is allocated by PyTorch, and 25.50 GiB is reserved by PyTorch but unallocated.",
//! );
//! assert_eq!(report.verdict, Verdict::Fragmentation);
//! assert_eq!(report.fixes[0].line.as_deref(), Some("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"));
//! ```
//!
//! Texts are untrusted: what is quoted of them is cleaned and cut, and no text makes it panic or take more than linear time.

#![forbid(unsafe_code)]

mod advice;
mod diagnose;
mod families;
mod pytorch;
mod scan;
mod text;
mod verdict;

use std::collections::BTreeSet;
use std::io;

use serde::Serialize;

pub use advice::Fix;
pub use diagnose::diagnose;
pub use pytorch::Figures;
pub use verdict::{Allocator, Verdict};

use scan::Found;
use text::{Excerpt, Log};

/// What a text says of a failure.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The cause.
    pub verdict: Verdict,
    /// Whose memory it is.
    pub allocator: Allocator,
    /// The reason for the verdict, one sentence without a full stop.
    pub why: String,
    /// The figures, in bytes.
    pub figures: Figures,
    /// The line that says so, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// How many other lines say that memory failed. They may follow from it.
    pub further: usize,
    /// What the text does not say, and how to find it out.
    pub missing: Vec<String>,
    /// What helps, the first thing to try first.
    pub fixes: Vec<Fix>,
    /// What misleads in the text.
    pub notes: Vec<String>,
}

/// A line of the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Its number, from 1.
    pub line: usize,
    /// Who wrote it, as the prefix of the line names it: a rank, a worker, a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// What it says, cut to what can be shown.
    pub text: String,
}

/// Reads a log or a message.
///
/// Of more than 32 MiB the first and the last half of that are judged.
///
/// # Errors
/// Those of the reader.
pub fn triage_log(reader: impl io::Read) -> io::Result<Report> {
    let excerpt = Excerpt::read(reader)?;
    let mut report = triage(&excerpt.text);
    if let Some(evidence) = &mut report.evidence {
        evidence.line = excerpt.number(evidence.line);
    }
    Ok(report)
}

/// Judges a text, all of it.
pub fn triage(text: &str) -> Report {
    let log = Log::new(text);
    let found = scan::scan(&log);
    let Some(first) = scan::first(&log, &found) else {
        return nothing();
    };
    let judged = &first.judged;
    let stream = &log.streams[first.stream];
    let is_named = log.is_named(first.line);
    let failures = found
        .iter()
        .filter(|found| found.judged.strength >= families::Strength::General);
    let lines: BTreeSet<_> = failures
        .map(|found| found.line)
        .filter(|line| *line != first.line)
        .collect();
    let mut report = Report {
        verdict: judged.verdict,
        allocator: judged.allocator,
        why: judged.why.clone(),
        figures: judged.figures.clone(),
        evidence: Some(Evidence {
            line: log.number(first.line),
            source: is_named.then(|| gpumem_text::clean_line(stream.source.as_bytes(), 60)),
            rank: stream.rank.filter(|_| is_named),
            text: log.quote(first.line),
        }),
        further: lines.len(),
        missing: Vec::new(),
        fixes: Vec::new(),
        notes: Vec::new(),
    };
    advice::add(&mut report, &context(&log, first));
    report
}

/// Judges figures that are known without a text, as those of a live process. `is_ours`: its allocator is gpumem's, not PyTorch's.
pub fn triage_figures(figures: Figures, is_ours: bool) -> Report {
    let (verdict, why) = diagnose(&figures);
    let mut report = Report {
        verdict,
        allocator: Allocator::Device,
        why,
        figures,
        ..nothing()
    };
    report.missing.clear();
    advice::add(&mut report, if is_ours { "gpumem-alloc" } else { "pytorch" });
    report
}

/// The text around a failure, in lower case without white space.
fn context(log: &Log, first: &Found) -> String {
    let stream = &log.streams[first.stream];
    stream.before(first.begin, 4000).to_owned() + stream.after(first.begin, 4000)
}

fn nothing() -> Report {
    Report {
        verdict: Verdict::Nothing,
        allocator: Allocator::None,
        why: "no line says that memory failed".to_owned(),
        figures: Figures::default(),
        evidence: None,
        further: 0,
        missing: vec!["If it did run out of memory: the lines around the first error, of every rank".to_owned()],
        fixes: Vec::new(),
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
