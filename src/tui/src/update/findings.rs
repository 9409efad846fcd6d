//! Says in words what the figures show.

use gpumem_probe::Reading;

use crate::model::{DeviceState, Figures, Finding, Process, ProcessId, ProcessState, Severity, SourceState, World};
use crate::units;

/// Cache below this many bytes is not worth a sentence.
const CACHE_WORTH_SAYING: u64 = 64 << 20;

/// Everything worth saying, worst first.
pub(super) fn of(world: &World) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let SourceState::Failing { error, hint } = &world.nvml.state {
        findings.push(finding(Severity::Error, None, format!("NVML: {error}. {hint}")));
    }
    for device in &world.devices {
        if let DeviceState::Lost(text) = &device.state {
            let text = format!("{} is lost: {text}. Its figures are the last known", device.label);
            findings.push(finding(Severity::Error, None, text));
        }
        if let (Reading::Value(memory), DeviceState::Present) = (&device.memory, &device.state)
            && memory.free < memory.total / 50
        {
            let (free, total) = (units::bytes(memory.free), units::bytes(memory.total));
            let text = format!("{}: {free} of {total} left", device.label);
            findings.push(finding(Severity::Warning, None, text));
        }
    }
    for process in world.processes.iter().filter(|p| !world.past.contains(&p.id)) {
        about_process(process, &mut findings);
    }
    for channel in world.published.iter().filter(|c| c.snapshot.untracked_blocks > 0) {
        let snapshot = &channel.snapshot;
        let text = format!(
            "{}: {} blocks ({}) do not fit into its channel's table and are not on the map",
            channel.pid.unwrap_or(snapshot.identity.pid),
            snapshot.untracked_blocks,
            units::bytes(snapshot.untracked_bytes)
        );
        findings.push(finding(Severity::Info, None, text));
    }
    if !world.problems.is_empty() {
        let text = match world.problems.as_slice() {
            [one] => format!("channel {} cannot be read: {}", one.file, one.text),
            many => format!(
                "{} channel files cannot be read: gpumem-tui doctor says why",
                many.len()
            ),
        };
        findings.push(finding(Severity::Info, None, text));
    }
    findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
    findings
}

fn about_process(process: &Process, findings: &mut Vec<Finding>) {
    let pid = process.pid;
    let mut say = |severity, text| findings.push(finding(severity, Some(process.id), text));
    if let ProcessState::Inconsistent(error) = &process.state {
        say(Severity::Warning, format!("{pid}: {error}"));
    }
    let Some(figures) = &process.figures else { return };
    if process.state == ProcessState::Died {
        say(
            Severity::Info,
            format!("{pid} died holding {}", units::bytes(figures.allocated)),
        );
    }
    if figures.ooms > 0 {
        let times = if figures.ooms == 1 {
            "once".into()
        } else {
            format!("{} times", figures.ooms)
        };
        say(Severity::Error, format!("{pid}: ran out of memory {times}"));
    }
    if process.state.alive() && cache_is_cut_up(figures) {
        let (cached, largest) = (units::bytes(figures.cached), units::bytes(figures.largest_free));
        let text =
            format!("{pid}: {cached} cached, largest free block {largest}: the next larger request takes new memory");
        say(Severity::Warning, text);
    }
}

/// Much is cached, and no request of half of it could be served from it.
fn cache_is_cut_up(figures: &Figures) -> bool {
    figures.complete
        && figures.cached >= CACHE_WORTH_SAYING.max(figures.reserved / 20)
        && figures.largest_free < figures.cached / 2
}

fn finding(severity: Severity, process: Option<ProcessId>, text: String) -> Finding {
    Finding {
        severity,
        process,
        text,
    }
}
