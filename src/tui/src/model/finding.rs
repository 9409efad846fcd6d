//! Sentences about the state of the machine.

use super::process::ProcessId;
use super::views::View;

/// How much a finding or message matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Good to know.
    #[default]
    Info,
    /// It costs memory, or a request is likely to fail because of it.
    Warning,
    /// Something failed.
    Error,
}

/// What a finding is about, which decides where it leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum About {
    /// A device, the driver, the channels.
    #[default]
    Machine,
    /// A process in general.
    Process,
    /// Requests that failed.
    Failure,
    /// What an allocator caches, and in what pieces.
    Cache,
    /// Managed memory.
    Managed,
    /// The end of a process.
    End,
    /// What a process holds, over time.
    Growth,
    /// The older findings.
    Older,
}

impl About {
    /// Returns the view that shows more of it.
    pub(crate) fn view(self) -> View {
        match self {
            About::Machine | About::Older => View::Overview,
            About::Process | About::Cache => View::Blocks,
            About::Failure => View::Triage,
            About::Managed => View::Unified,
            About::End | About::Growth => View::Timeline,
        }
    }
}

/// A sentence about the state of the machine, worst first in [`super::World::findings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The process that it is about, if it is about one.
    pub process: Option<ProcessId>,
    /// What it is about.
    pub about: About,
    /// The sentence, without mark or prefix.
    pub text: String,
}

/// What identifies a finding while its figures change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FindingKey {
    process: Option<ProcessId>,
    about: About,
    /// The words of a finding about no process, without its figures.
    words: String,
}

impl Finding {
    /// Returns what identifies it.
    pub(crate) fn key(&self) -> FindingKey {
        let words = match self.process {
            Some(_) => String::new(),
            None => self.text.chars().filter(|c| c.is_alphabetic()).collect(),
        };
        FindingKey {
            process: self.process,
            about: self.about,
            words,
        }
    }
}
