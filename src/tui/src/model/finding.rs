//! What is worth saying in words.

use super::process::ProcessId;

/// How much a finding or message matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Good to know.
    #[default]
    Info,
    /// Costs memory or will cost a failed request.
    Warning,
    /// Something failed.
    Error,
}

/// A sentence about the state of the machine, worst first in [`super::World::findings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// Which process it is about.
    pub process: Option<ProcessId>,
    /// The sentence, without mark or prefix.
    pub text: String,
}
