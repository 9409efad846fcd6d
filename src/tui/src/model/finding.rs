//! Sentences about the state of the machine.

use super::process::ProcessId;

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

/// A sentence about the state of the machine, worst first in [`super::World::findings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The process that it is about, if it is about one.
    pub process: Option<ProcessId>,
    /// The sentence, without mark or prefix.
    pub text: String,
}
