//! A demo that runs as a child of the dashboard.

use super::Nanos;

/// A demo that can be started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DemoInfo {
    /// Its name on the command line.
    pub name: String,
    /// What it shows, in a sentence.
    pub summary: String,
    /// Whether it was told to run on the simulated device, or on another one; `None`: on the simulated one where there is no GPU.
    pub simulated: Option<bool>,
}

/// When a demo goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemoKind {
    /// When the user says so: space is its next step.
    Stepped,
    /// By itself, at a pace that the user sets.
    Paced,
    /// By itself, until it is told to quit.
    Looping,
}

/// Where a demo is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DemoPhase {
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
    /// The user ended it.
    Stopped,
    /// It could not go on.
    Failed(String),
}

/// Something the user may choose, sent to the child as `fix NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// What is sent.
    pub name: String,
    /// What is shown: what it does and when it helps.
    pub title: String,
    /// It is applied where none is chosen.
    pub default: bool,
}

impl Choice {
    /// Its title, and whether it is the default.
    pub(crate) fn text(&self) -> String {
        let lead = if self.default { "default: " } else { "" };
        format!("{lead}{}", self.title)
    }
}

/// The allocator's figures after a step, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DemoStats {
    /// Held by the program.
    pub allocated: u64,
    /// Taken from the driver.
    pub reserved: u64,
    /// Reserved and not allocated.
    pub cached: u64,
    /// Sum of all free blocks.
    pub free_total: u64,
    /// Largest free block.
    pub largest_free: u64,
    /// 1 - largest free block / all free; `None` when nothing is free.
    pub fragmentation: Option<f64>,
    /// Requests that failed so far.
    pub ooms: u64,
}

/// A request that failed in a step, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DemoOom {
    /// Asked for.
    pub requested: u64,
    /// Sum of all free blocks at that moment.
    pub free_total: u64,
    /// Largest free block at that moment.
    pub largest_free: u64,
    /// What would have helped, in sentences.
    pub report: String,
}

/// One step, as the child told it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DemoStep {
    /// Its number, from 1.
    pub number: u64,
    /// What was done, in one line.
    pub title: String,
    /// What was done and what it shows, in sentences.
    pub detail: String,
    /// Figures after the step.
    pub stats: DemoStats,
    /// Whether every live block held its pattern; `None` when the step did not check.
    pub verified: Option<bool>,
    /// The request that failed, if one did.
    pub oom: Option<DemoOom>,
    /// Phases of a training step in order: name and bytes allocated at its end.
    pub phases: Vec<(String, u64)>,
    /// A replay stands still until it is told to go on.
    pub halted: bool,
}

/// How a demo ended; each is `None` where the demo does not show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DemoOutcome {
    /// The large request failed before the fix.
    pub failed_before: Option<bool>,
    /// It succeeded after the fix.
    pub succeeded_after: Option<bool>,
    /// The fix.
    pub fix: Option<String>,
    /// Every pattern that was checked was intact.
    pub patterns_verified: Option<bool>,
}

/// The demo that runs or ran last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Demo {
    /// Its name.
    pub name: String,
    /// The child's process id, while it lives.
    pub pid: Option<u32>,
    /// When it goes on; `None` until the child tells.
    pub kind: Option<DemoKind>,
    /// Where it is.
    pub phase: DemoPhase,
    /// Name of its device; empty until the child tells.
    pub device: String,
    /// The device is simulated.
    pub simulated: bool,
    /// Bytes of device memory it will not exceed; `None` for a replay that may take all there is, and until the child tells.
    pub budget: Option<u64>,
    /// Number of steps in all, of a replay of its passes; 0 when it runs until told to quit (or has not told yet).
    pub total_steps: u64,
    /// It was started because there is no GPU, not because the user asked.
    pub automatic: bool,
    /// The dashboard was started for it.
    pub asked_for: bool,
    /// The exit code that says how it failed; 0 while it has not.
    pub exit_code: u8,
    /// Steps so far, oldest first; the last is the current one. At most [`Demo::MAX_STEPS`], the newest.
    pub steps: Vec<DemoStep>,
    /// What the user may choose now.
    pub choices: Vec<Choice>,
    /// The newest thing the child had to say besides steps (a command it did not understand).
    pub notice: Option<String>,
    /// Why it cannot publish what it does, if it said so.
    pub unpublished: Option<String>,
    /// When it first told of memory that it has.
    pub has_memory_since: Option<Nanos>,
    /// How it ended, once it did.
    pub outcome: Option<DemoOutcome>,
}

impl Demo {
    /// How many steps are kept.
    pub(crate) const MAX_STEPS: usize = 64;

    /// Whether the child lives.
    pub(crate) fn running(&self) -> bool {
        matches!(
            self.phase,
            DemoPhase::Starting | DemoPhase::Running | DemoPhase::Waiting
        )
    }

    /// Whether it goes on only when the user says so (space is "next step" then).
    pub(crate) fn stepped(&self) -> bool {
        self.running() && self.kind == Some(DemoKind::Stepped)
    }

    /// Whether it went on at the user's word, and is over: space has no step to go on to.
    pub(crate) fn over(&self) -> bool {
        !self.running() && self.kind == Some(DemoKind::Stepped)
    }

    /// Whether the user sets its pace.
    pub(crate) fn paced(&self) -> bool {
        self.running() && self.kind == Some(DemoKind::Paced)
    }

    /// Why what the dashboard was started for failed, and the exit code that says so.
    pub(crate) fn failure(&self) -> Option<(u8, &str)> {
        match &self.phase {
            DemoPhase::Failed(why) if self.asked_for => Some((self.exit_code, why)),
            _ => None,
        }
    }

    /// The current step.
    pub(crate) fn current(&self) -> Option<&DemoStep> {
        self.steps.last()
    }
}
