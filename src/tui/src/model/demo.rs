//! A demo that runs as a child of the dashboard.

/// A demo that can be started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DemoInfo {
    /// Its name on the command line.
    pub name: String,
    /// What it shows, in a sentence.
    pub summary: String,
}

/// Where a demo is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DemoPhase {
    /// The child was started and has not spoken yet.
    #[default]
    Starting,
    /// It works on a step.
    Running,
    /// It waits for the user: the next step, or a choice.
    Waiting,
    /// It ended; whether it showed what it set out to show.
    Done {
        /// The demo's own verdict.
        ok: bool,
    },
    /// It could not go on.
    Failed(String),
}

/// Something the user may choose, sent to the child as `fix KEY`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// What is sent.
    pub key: String,
    /// What is shown.
    pub title: String,
}

/// One step, as the child told it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DemoStep {
    /// What was done.
    pub title: String,
    /// What it means.
    pub detail: String,
    /// Figures after the step, in order: name and text.
    pub stats: Vec<(String, String)>,
}

/// The demo that runs or ran last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demo {
    /// Its name.
    pub name: String,
    /// The child's process id, while it lives.
    pub pid: Option<u32>,
    /// Where it is.
    pub phase: DemoPhase,
    /// The device is simulated.
    pub simulated: bool,
    /// It was started because there is no GPU, not because the user asked.
    pub automatic: bool,
    /// Steps so far, oldest first; the last is the current one. At most 64.
    pub steps: Vec<DemoStep>,
    /// What the user may choose now.
    pub choices: Vec<Choice>,
}

impl Demo {
    /// Whether the child lives.
    pub fn running(&self) -> bool {
        matches!(
            self.phase,
            DemoPhase::Starting | DemoPhase::Running | DemoPhase::Waiting
        )
    }
}
