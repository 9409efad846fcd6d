//! Which processes ran out of memory, why, and which of them the Triage view shows.

use gpumem_text::units;
use gpumem_triage::{Figures, Fix, Report, Verdict, triage_figures};

use super::{Model, Nanos, Process, RanOut, World};

/// Judges the last request of a publisher that failed, by its figures of now. `None` if none is known.
pub(crate) fn judge(world: &World, process: &Process) -> Option<Report> {
    let published = process.figures.as_ref()?;
    let ran_out = published.ran_out.as_ref()?;
    let alive = process.state.alive();
    let device = world.devices.iter().find(|device| device.key == process.id.device);
    let memory = device.and_then(|device| device.memory.value());
    // What others have now is not what they had when a program ended.
    let others = world.processes.iter().filter(|other| {
        let elsewhere = other.id.device != process.id.device || other.pid == process.pid;
        alive && !elsewhere && other.state.alive()
    });
    let figures = Figures {
        requested: Some(ran_out.requested),
        total: memory.map(|memory| memory.total),
        free: ran_out
            .device_free
            .or(memory.filter(|_| alive).map(|memory| memory.free)),
        allocated: Some(published.allocated),
        unallocated: Some(published.cached),
        allowed: published.budget,
        this_process: process.nvml.value().copied(),
        others: others
            .filter_map(|other| Some((other.pid, *other.nvml.value()?)))
            .collect(),
        ..Figures::default()
    };
    let mut report = triage_figures(figures, !published.sampled);
    let largest = ran_out.largest_free.or(published.largest());
    if report.verdict == Verdict::Fragmentation
        && !published.stitched
        && largest.map_or(published.sampled, |largest| largest >= ran_out.requested)
    {
        report.verdict = Verdict::Incomplete;
        report.why = format!(
            "{} are cached now, which is enough: what was cached when the request failed, and in what pieces, is not known",
            units::bytes(published.cached)
        );
    }
    if let Some(largest) = ran_out.largest_free {
        report.why = format!("{}. The largest free block was {}", report.why, units::bytes(largest));
    }
    if ran_out.served {
        report.notes.push("A request of that size succeeded since".to_owned());
    }
    if let Some(advice) = ran_out.advised() {
        let fix = Fix {
            text: format!("As its allocator says: {advice}"),
            line: None,
        };
        report.fixes.insert(0, fix);
    }
    Some(report)
}

/// Returns what helps first, in a few words: what the allocator said, or what follows from a verdict that the figures carry.
pub(crate) fn first_fix(world: &World, process: &Process, ran_out: &RanOut) -> Option<String> {
    if let Some(advice) = ran_out.advised() {
        return Some(advice);
    }
    let report = judge(world, process)?;
    let carries = matches!(
        report.verdict,
        Verdict::Exhausted
            | Verdict::Fragmentation
            | Verdict::OtherProcess
            | Verdict::RequestTooLarge
            | Verdict::ProcessLimit
            | Verdict::OutsideAllocator
    );
    let text = report.fixes.first().filter(|_| carries).map(|fix| fix.text.as_str())?;
    let sentence = text.split_once(". ").map_or(text, |(first, _)| first);
    let mut letters = sentence.chars();
    letters
        .next()
        .map(|first| first.to_lowercase().chain(letters).collect())
}

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
