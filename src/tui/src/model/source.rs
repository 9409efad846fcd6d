//! Where figures come from, and how old they are.

use crate::units;

use super::Nanos;

/// Whether a source delivers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SourceState {
    /// No sample yet.
    #[default]
    Starting,
    /// Its newest sample is good.
    Ok,
    /// It is not on this machine.
    Missing,
    /// It fails: what happened, and what the user can do.
    Failing {
        /// What happened.
        error: String,
        /// What the user can do.
        hint: String,
    },
}

impl SourceState {
    /// How NVML fails, as a finding; `None` while it does not.
    pub fn nvml_failure(&self) -> Option<String> {
        match self {
            SourceState::Failing { error, hint } => Some(format!("NVML: {error}. {}", units::sentence(hint))),
            SourceState::Starting | SourceState::Ok | SourceState::Missing => None,
        }
    }
}

/// A source of figures.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Whether it delivers.
    pub state: SourceState,
    /// When its newest sample was taken.
    pub sampled_at: Option<Nanos>,
}

impl Source {
    /// A source that delivered is stale when it has missed three samples and two seconds: its figures are then old, not
    /// wrong. One that is missing has no figures that could age.
    pub fn stale(&self, now: Nanos, interval: Nanos) -> bool {
        self.state == SourceState::Ok
            && self
                .sampled_at
                .is_some_and(|at| now.saturating_sub(at) > (3 * interval).max(2 * super::SECOND))
    }
}
