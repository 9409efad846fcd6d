//! The lines that a running demo writes to stdout and reads from stdin.
//!
//! Output: one JSON object per line ([`Line`]), each with `"schema":"gpumem-demo/1"`, the demo's name and a `"type"`:
//! `start` once, then `step` lines, `notice` for invalid input and for reports, and as the last line either
//! `result` or `error`. A demo that is told to quit, loses its parent or is stopped by a signal ends without a result.
//! Within one schema number fields are only added, so a reader ignores those it does not know.
//!
//! Input, when steered: one [`Command`] per line: `next`, `fix NAME`, `quit`, and for a paced demo `speed N`, `speed max`,
//! `faster`, `slower`, `pause`. The [`Kind`] in `start` says which of them the demo takes. End of input means that the parent
//! is gone.

use gpumem_alloc::OomReport;
use serde::{Deserialize, Deserializer, Serialize};

use crate::pace::Pace;

/// The schema named in every line. Readers refuse other schemas.
pub const SCHEMA: &str = "gpumem-demo/1";

/// The longest line in bytes, in either direction.
pub const MAX_LINE: usize = 64 * 1024;

/// One line of a demo's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// [`SCHEMA`].
    pub schema: String,
    /// The demo's name on the command line.
    pub demo: String,
    /// The content of the line.
    #[serde(flatten)]
    pub body: Body,
}

/// The kinds of lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Body {
    /// First line: the device and settings of the demo.
    Start(Start),
    /// A finished step. For a replay, whose steps are its passes, the progress of one.
    Step(Box<Step>),
    /// A report besides the steps, or an answer to an input line that was invalid or came at the wrong time. The demo goes on.
    Notice {
        /// The text. For input it says what was wrong and what is expected.
        message: String,
    },
    /// Last line of a demo that ran to its end.
    Result {
        /// How it ended.
        result: Outcome,
    },
    /// Last line of a demo that could not go on.
    Error {
        /// What failed, and what the user can do.
        message: String,
        /// The exit code that follows.
        exit_code: u8,
    },
}

/// The device and settings of a demo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    /// The demo's process id, by which its channel is found.
    pub pid: u32,
    /// Path of the channel; `None` if publishing failed or is off.
    pub channel: Option<String>,
    /// The device's marketing name.
    pub device: String,
    /// True on the simulated device. Every figure of this run must then be labelled SIMULATED.
    pub simulated: bool,
    /// Bytes of device memory that the demo will not exceed; `None` for a replay that may take all there is.
    pub budget: Option<u64>,
    /// Number of steps, or of passes of a replay; 0 means that it runs until told to quit.
    pub steps: u64,
    /// Bytes of addresses that the maps of all steps cover together, as planned; `None` if it reports no maps.
    pub map_bytes: Option<u64>,
    /// When the demo goes on. `None` for an older demo that does not say, or a kind that this reader does not know.
    #[serde(deserialize_with = "known_kind")]
    pub kind: Option<Kind>,
}

/// When a demo goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// At each `next`, or `fix NAME` where a fix can be chosen.
    Stepped,
    /// By itself, at a speed that the commands of [`Pace`] set.
    Paced,
    /// By itself, over and over, until its last step or `quit`.
    Looping,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 3] = [Kind::Stepped, Kind::Paced, Kind::Looping];

    /// Returns its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Stepped => "stepped",
            Kind::Paced => "paced",
            Kind::Looping => "looping",
        }
    }
}

/// Reads a kind; unknown ones are read as `None`.
fn known_kind<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Kind>, D::Error> {
    let written = serde_json::Value::deserialize(from)?;
    Ok(Kind::ALL.into_iter().find(|kind| written.as_str() == Some(kind.name())))
}

/// A finished step, or the progress of a pass of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    /// Number of this step, from 1.
    pub step: u64,
    /// Total number of steps; 0 means that it runs until told to quit.
    pub steps: u64,
    /// Stable name of the step, e.g. `free-every-other`.
    pub id: String,
    /// The title, in one line.
    pub title: String,
    /// The figures that matter in this step, in one line; empty if it has none.
    pub headline: String,
    /// What the step shows, in one sentence; empty if `detail` says all.
    pub summary: String,
    /// What was done and what it shows, in sentences.
    pub detail: String,
    /// The allocator's figures after the step.
    pub stats: Stats,
    /// What `fix NAME` accepts now; empty if there is nothing to choose.
    pub choices: Vec<Choice>,
    /// Whether every live block held its pattern when this step checked; `None` when it did not check.
    pub verified: Option<bool>,
    /// The request that failed in this step, if one did.
    pub oom: Option<OutOfMemory>,
    /// The phases of a training step, in order, with the bytes allocated at the end of each.
    pub phases: Vec<Phase>,
    /// Whether a replay is paused.
    pub halted: bool,
    /// What was measured in the step, before and after a fix. Only demos of managed memory measure.
    pub measures: Vec<Measure>,
    /// The allocator's blocks after the step, by address. Addresses between them have no memory. Empty if the demo reports no maps.
    pub map: Vec<MapBlock>,
}

/// A block of the allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MapBlock {
    /// First byte.
    pub addr: u64,
    /// Bytes, at least 1.
    pub size: u64,
    /// Whether it is in the cache, not held by the program.
    pub free: bool,
}

/// A measured access to managed memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measure {
    /// What was done, in a few words.
    pub name: String,
    /// The time in nanoseconds; modelled on the simulated device.
    pub ns: u64,
    /// Bytes of the pages that were accessed, each access counted.
    pub bytes: u64,
    /// Bytes that moved to the GPU; like all that follow `None` on a real device, where the process does not know.
    pub to_gpu: Option<u64>,
    /// Bytes that moved to the CPU.
    pub to_cpu: Option<u64>,
    /// CPU page faults (a count).
    pub cpu_faults: Option<u64>,
    /// GPU page faults (a count).
    pub gpu_faults: Option<u64>,
    /// Bytes of `to_cpu` that moved because the GPU was full.
    pub evicted: Option<u64>,
}

/// The allocator's figures, in bytes unless said otherwise. Terms are PyTorch's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Bytes that the program requested and holds.
    pub requested: u64,
    /// The same after rounding.
    pub allocated: u64,
    /// Allocated, or freed with GPU work still queued on it.
    pub active: u64,
    /// Physical memory taken from the driver.
    pub reserved: u64,
    /// Reserved and not allocated.
    pub cached: u64,
    /// Highest `allocated` so far.
    pub peak_allocated: u64,
    /// Highest `reserved` so far.
    pub peak_reserved: u64,
    /// Largest free block, 0 when nothing is free.
    pub largest_free: u64,
    /// Sum of all free blocks.
    pub free_total: u64,
    /// 1 - largest free block / all free, from 0 to 1; `None` when nothing is free.
    pub external_fragmentation: Option<f64>,
    /// 1 - requested / allocated, from 0 to 1; `None` when nothing is allocated.
    pub internal_fragmentation: Option<f64>,
    /// Free memory of the whole device as its driver counts it; `None` if it could not be queried.
    pub driver_free: Option<u64>,
    /// Segments held (a count).
    pub segments: u64,
    /// Blocks held by the program (a count).
    pub blocks: u64,
    /// Requests that failed so far (a count).
    pub ooms: u64,
    /// Requests that succeeded only after room was made (a count).
    pub retries: u64,
}

/// A fix that can be chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// What `fix NAME` takes.
    pub name: String,
    /// What it does and when it helps, in one line.
    pub title: String,
    /// Whether `next` applies it.
    #[serde(default)]
    pub default: bool,
}

/// A request that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutOfMemory {
    /// The requested bytes.
    pub requested: u64,
    /// Sum of all free blocks at that moment.
    pub free_total: u64,
    /// Largest free block at that moment among those that could have served the request but for their size.
    pub largest_free: u64,
    /// Bytes taken from the driver at that moment.
    pub reserved: u64,
    /// Bytes held by the program at that moment.
    pub allocated: u64,
    /// The whole report as text, with what would have helped.
    pub report: String,
}

impl From<&OomReport> for OutOfMemory {
    fn from(report: &OomReport) -> OutOfMemory {
        OutOfMemory {
            requested: report.requested,
            free_total: report.total_free,
            largest_free: report.largest_free,
            reserved: report.reserved,
            allocated: report.allocated,
            report: report.to_string(),
        }
    }
}

/// A phase of a training step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Phase {
    /// `forward`, `backward` or `optimizer`.
    pub name: String,
    /// Bytes allocated when it ended.
    pub allocated: u64,
    /// Bytes reserved when it ended.
    pub reserved: u64,
}

/// How a demo ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// The large request failed before the fix.
    pub failed_before: Option<bool>,
    /// It succeeded after the fix.
    pub succeeded_after: Option<bool>,
    /// The fix that was applied.
    pub fix: Option<String>,
    /// Every pattern that was checked was intact; `None` when the demo checks none.
    pub patterns_verified: Option<bool>,
    /// Words of memory that were compared with their pattern.
    pub words_checked: u64,
    /// Number of finished steps.
    pub steps_done: u64,
    /// Bytes still reserved after the demo freed everything; anything but 0 is a leak.
    pub reserved_at_end: u64,
}

impl Outcome {
    /// Checks whether the demo showed what it promises, which decides the exit code.
    pub fn as_promised(&self) -> bool {
        self.failed_before != Some(false)
            && self.succeeded_after != Some(false)
            && self.patterns_verified != Some(false)
            && self.reserved_at_end == 0
    }
}

/// Why a line is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// Longer than [`MAX_LINE`].
    #[error("a line of {0} bytes is longer than the {MAX_LINE} of the protocol")]
    TooLong(usize),
    /// Not JSON, or JSON of another shape.
    #[error("not a line of {SCHEMA}: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A different schema.
    #[error("schema {0:?}, expected {SCHEMA:?}: the demo and its reader are of different versions")]
    Schema(String),
    /// A command that does not exist.
    #[error("unknown command {0:?}")]
    Command(String),
}

impl Line {
    /// Creates a line of `demo`.
    pub fn new(demo: &str, body: Body) -> Line {
        Line {
            schema: SCHEMA.to_owned(),
            demo: demo.to_owned(),
            body,
        }
    }

    /// Parses one line. Its texts are as the writer sent them: clean them before they reach a terminal.
    ///
    /// # Errors
    /// When it is too long, not such JSON, or of another schema.
    pub fn parse(line: &str) -> Result<Line, ParseError> {
        if line.len() > MAX_LINE {
            return Err(ParseError::TooLong(line.len()));
        }
        let value: serde_json::Value = serde_json::from_str(line)?;
        match value.get("schema").and_then(|s| s.as_str()) {
            Some(SCHEMA) => Ok(serde_json::from_value(value)?),
            other => Err(ParseError::Schema(other.unwrap_or_default().to_owned())),
        }
    }
}

/// An input line of a steered demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Do the next step.
    Next,
    /// Apply the fix of this name.
    Fix(String),
    /// Change the speed of a replay.
    Pace(Pace),
    /// Free everything and end.
    Quit,
}

impl Command {
    /// Parses one line.
    ///
    /// # Errors
    /// When it is not a command; the message is for the sender.
    pub fn parse(line: &str) -> Result<Command, ParseError> {
        let words: Vec<&str> = line.split_whitespace().take(3).collect();
        match words[..] {
            ["next"] => Ok(Command::Next),
            ["quit"] => Ok(Command::Quit),
            ["fix", name] => Ok(Command::Fix(name.to_owned())),
            _ => Pace::parse(&words)
                .map(Command::Pace)
                .ok_or_else(|| ParseError::Command(line.trim().chars().take(80).collect())),
        }
    }
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Command::Next => f.write_str("next"),
            Command::Fix(name) => write!(f, "fix {name}"),
            Command::Pace(pace) => pace.fmt(f),
            Command::Quit => f.write_str("quit"),
        }
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
