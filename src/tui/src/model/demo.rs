//! A demo that runs as a child of the dashboard.

use super::Nanos;

/// A demo that can be started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DemoInfo {
    /// Its name on the command line.
    pub name: String,
    /// What it shows, in a sentence.
    pub summary: String,
    /// Whether the user asked for the simulated device, or for a real one. `None` runs on the simulated one if there is no GPU.
    pub simulated: Option<bool>,
}

/// How a demo advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemoKind {
    /// At each press of Enter.
    Stepped,
    /// By itself, at a pace that the user sets.
    Paced,
    /// By itself, until it is stopped.
    Looping,
}

/// The state of a demo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DemoPhase {
    /// The child was started and has sent nothing yet.
    #[default]
    Starting,
    /// A step is running.
    Running,
    /// It waits for the user: the next step, or a choice.
    Waiting,
    /// It ended.
    Done {
        /// Whether it showed what it was meant to show, by its own verdict.
        ok: bool,
    },
    /// The user stopped it.
    Stopped,
    /// It failed; the text says why.
    Failed(String),
}

/// A fix that the user may choose. It is sent to the child as `fix NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The name that is sent.
    pub name: String,
    /// The text that is shown: what it does and when it helps.
    pub title: String,
    /// Whether it is applied when the user chooses none.
    pub default: bool,
}

impl Choice {
    /// Returns its title, marked if it is the default.
    pub(crate) fn text(&self) -> String {
        let lead = if self.default { "default: " } else { "" };
        format!("{lead}{}", self.title)
    }

    /// Returns the same without the conditions, which follow a semicolon.
    pub(crate) fn short(&self) -> String {
        let text = self.text();
        text.split(';').next().unwrap_or_default().to_owned()
    }
}

/// The allocator's figures after a step, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DemoStats {
    /// Held by the program.
    pub allocated: u64,
    /// Taken from the driver.
    pub reserved: u64,
    /// Reserved but not allocated.
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
    /// Size of the request.
    pub requested: u64,
    /// Sum of all free blocks at that moment.
    pub free_total: u64,
    /// Largest free block at that moment.
    pub largest_free: u64,
    /// What would have helped, in sentences.
    pub report: String,
}

/// One step, as the child reported it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DemoStep {
    /// Its number, from 1.
    pub number: u64,
    /// What was done, in one line.
    pub title: String,
    /// The figures that matter, in one line; empty if there are none.
    pub headline: String,
    /// What it shows, in one sentence; empty if `detail` says all.
    pub summary: String,
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
    /// Whether a replay is halted until the user resumes it.
    pub halted: bool,
    /// The allocator's blocks after the step, by address. Empty if the demo reports no maps.
    pub map: Vec<DemoBlock>,
}

/// A block of the demo's allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DemoBlock {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// Whether it is in the cache, not held by the program.
    pub free: bool,
}

/// How a demo ended. A field is `None` if the demo does not show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DemoOutcome {
    /// Whether the large request failed before the fix.
    pub failed_before: Option<bool>,
    /// Whether it succeeded after the fix.
    pub succeeded_after: Option<bool>,
    /// The fix that was applied.
    pub fix: Option<String>,
    /// Whether every pattern that was checked was intact.
    pub patterns_verified: Option<bool>,
}

/// The demo that runs or ran last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Demo {
    /// Its name.
    pub name: String,
    /// The child's process id, while it lives.
    pub pid: Option<u32>,
    /// How it advances; `None` until the child reports it.
    pub kind: Option<DemoKind>,
    /// Its state.
    pub phase: DemoPhase,
    /// Name of its device; empty until the child reports it.
    pub device: String,
    /// Whether the device is simulated.
    pub simulated: bool,
    /// Bytes of device memory that it will not exceed. `None` until the child reports it, and for a replay without a limit.
    pub budget: Option<u64>,
    /// Total number of steps, or of passes of a replay. 0 if it runs until it is stopped, and until the child reports it.
    pub total_steps: u64,
    /// Bytes of addresses that the maps of all its steps cover together, as it plans them; `None` if its steps have no maps.
    pub map_bytes: Option<u64>,
    /// Whether it was started because there is no GPU, not because the user asked for it.
    pub automatic: bool,
    /// Whether the dashboard was started for it.
    pub asked_for: bool,
    /// The exit code that says how it failed; 0 if it has not.
    pub exit_code: u8,
    /// The newest steps, at most [`Demo::MAX_STEPS`], oldest first. The last is the current one.
    pub steps: Vec<DemoStep>,
    /// The fixes that the user may choose now.
    pub choices: Vec<Choice>,
    /// The newest message of the child besides steps, such as a command that it did not understand.
    pub notice: Option<String>,
    /// Why it cannot publish, if it said so.
    pub unpublished: Option<String>,
    /// When it first reported memory of its own.
    pub has_memory_since: Option<Nanos>,
    /// How it ended, once it has.
    pub outcome: Option<DemoOutcome>,
}

impl Demo {
    /// Most steps that are kept.
    pub(crate) const MAX_STEPS: usize = 64;

    /// Checks whether the child runs.
    pub(crate) fn running(&self) -> bool {
        matches!(
            self.phase,
            DemoPhase::Starting | DemoPhase::Running | DemoPhase::Waiting
        )
    }

    /// Checks whether it runs and is stepped, so that Enter is the next step.
    pub(crate) fn stepped(&self) -> bool {
        self.running() && self.kind == Some(DemoKind::Stepped)
    }

    /// Checks whether it was stepped through to its end. Its last step stays on the screen.
    pub(crate) fn over(&self) -> bool {
        matches!(self.phase, DemoPhase::Done { .. }) && self.kind == Some(DemoKind::Stepped)
    }

    /// Checks whether the user can go back and forth between its steps.
    pub(crate) fn has_steps(&self) -> bool {
        self.kind == Some(DemoKind::Stepped) && !self.steps.is_empty()
    }

    /// Checks whether it runs at a pace that the user sets.
    pub(crate) fn paced(&self) -> bool {
        self.running() && self.kind == Some(DemoKind::Paced)
    }

    /// Returns the exit code and the reason if the dashboard was started for this demo and it failed.
    pub(crate) fn failure(&self) -> Option<(u8, &str)> {
        match &self.phase {
            DemoPhase::Failed(why) if self.asked_for => Some((self.exit_code, why)),
            _ => None,
        }
    }

    /// Returns the current step.
    pub(crate) fn current(&self) -> Option<&DemoStep> {
        self.steps.last()
    }

    /// Returns the steps up to the one that is `back` steps before the current one.
    pub(crate) fn steps_up_to(&self, back: usize) -> &[DemoStep] {
        let least = self.steps.len().min(1);
        &self.steps[..self.steps.len().saturating_sub(back).max(least)]
    }
}
