//! The lines that a steered benchmark writes to stdout.
//!
//! Output: one JSON object per line ([`Line`]), each with `"schema":"gpumem-bench/1"`, the benchmark's name and a `"type"`: `start`
//! once, then `progress` lines, and as the last line either `hierarchy` or `claims`, with the report, or `error`. A benchmark that is told
//! to quit, loses its parent or is stopped by a signal ends without a result. Within one schema number fields are only added.
//!
//! Input: `quit` ends it, and so does the end of input, which means that the parent is gone. Other lines are ignored.

use serde::{Deserialize, Serialize};

use super::{claims, hierarchy};

/// The schema named in every line. Readers refuse other schemas.
pub const SCHEMA: &str = "gpumem-bench/1";

/// The longest line in bytes.
pub const MAX_LINE: usize = crate::protocol::MAX_LINE;

/// One line of a benchmark's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// [`SCHEMA`].
    pub schema: String,
    /// The benchmark's name on the command line.
    pub bench: String,
    /// The content of the line.
    #[serde(flatten)]
    pub body: Body,
}

/// The kinds of lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Body {
    /// First line: the device and what the run takes of it.
    Start(Start),
    /// A measurement begins.
    Progress(Progress),
    /// Last line of a finished `bench hierarchy`.
    Hierarchy {
        /// What was measured.
        report: Box<hierarchy::Report>,
        /// The file that keeps it, if any.
        #[serde(default)]
        kept: Option<String>,
        /// Why it could not be kept, if that was asked for.
        #[serde(default)]
        not_kept: Option<String>,
    },
    /// Last line of a finished `bench claims`.
    Claims {
        /// What was checked.
        report: Box<claims::Report>,
    },
    /// Last line of a benchmark that could not go on.
    Error {
        /// What failed, and what the user can do.
        message: String,
        /// The exit code that follows.
        exit_code: u8,
    },
}

/// The device and settings of a benchmark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    /// The benchmark's process id.
    pub pid: u32,
    /// The device's marketing name.
    pub device: String,
    /// The device's UUID as NVML writes it.
    pub uuid: String,
    /// Bytes of memory that the benchmark will not exceed on the device, and on one peer at a time, besides contexts.
    pub budget: u64,
}

/// How far a benchmark is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Finished measurements (a count).
    pub done: u64,
    /// All measurements (a count).
    pub of: u64,
    /// What is measured now.
    pub what: String,
    /// An estimate of the time left, in milliseconds.
    pub left_ms: u64,
}
