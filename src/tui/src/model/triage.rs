//! Which processes ran out of memory, and which of them the Triage view shows.

use super::{Model, Nanos, Process};

/// When the last request of a process failed; `None` if none did.
fn failed_at(process: &Process) -> Option<Nanos> {
    let figures = process.figures.as_ref().filter(|figures| figures.ooms > 0)?;
    Some(figures.ran_out.as_ref().map_or(0, |ran_out| ran_out.at))
}

impl Model {
    /// Returns the processes whose requests failed, the last failure first. Black boxes from before the dashboard began come only if they
    /// are listed, or ended within the last hour.
    pub(crate) fn failed(&self) -> Vec<&Process> {
        let world = self.world();
        let shown =
            |process: &&Process| self.ui.black_boxes || !world.past.contains(&process.id) || process.has_just_failed();
        let mut failed: Vec<&Process> = world
            .processes
            .iter()
            .filter(|p| failed_at(p).is_some())
            .filter(shown)
            .collect();
        failed.sort_by_key(|process| std::cmp::Reverse((failed_at(process), process.id)));
        failed
    }

    /// Returns when the last request failed of the process that the Triage view shows.
    pub(crate) fn triaged_failure(&self) -> Option<Nanos> {
        // A time in the future is of another clock.
        let now = self.world().channels_at()?;
        self.triaged().and_then(failed_at).filter(|at| (1..=now).contains(at))
    }

    /// Returns the process that the Triage view shows; `None` if it shows a text, or there is none.
    pub(crate) fn triaged(&self) -> Option<&Process> {
        match self.ui.triage.pasted {
            Some(_) => None,
            None => self.selected_process(),
        }
    }
}
