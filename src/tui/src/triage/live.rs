//! Triage of what is there now: a process, or the whole machine.

use gpumem_probe::{HostState, MemoryHolder};
use gpumem_text::units;
use gpumem_triage::{Figures, Report, triage_figures};

use crate::check::{Check, Verdict, good, not};
use crate::model::{Figures as Published, Model, Process, Severity, claim, judge};

/// Findings that are listed; the rest are counted.
const FINDINGS: usize = 12;
/// Less free memory than this in `/dev/shm` is a risk.
const LITTLE_SHARED: u64 = 256 << 20;

/// Judges a process by what it publishes and what the driver counts. `None` if it is not known.
pub(crate) fn of_process(model: &Model, pid: u32) -> Option<Report> {
    let world = model.world();
    let its = || world.processes.iter().filter(|process| process.pid == pid);
    // The row that failed last, or else the largest.
    let failed_at = |process: &Process| {
        let figures = process.figures.as_ref();
        figures
            .and_then(|figures| figures.ran_out.as_ref())
            .map(|ran_out| ran_out.at)
    };
    let process = its().max_by_key(|process| {
        (
            failed_at(process),
            process.figures.as_ref().map(|figures| figures.reserved),
        )
    })?;
    let name = world.name_of(process);
    let Some(published) = &process.figures else {
        let mut report = triage_figures(Figures::default(), false);
        report.why = format!("{name} does not publish: only what the driver counts is known");
        report.figures.this_process = process.nvml.value().copied();
        report.missing = vec![format!("its allocator's figures: gpumem-tui attach {pid}")];
        report
            .missing
            .extend(process.hints.iter().filter_map(|hint| claim(&hint.kind)));
        return Some(report);
    };
    if published.ran_out.is_none() {
        return Some(without_request(&name, published));
    }
    let mut report = judge(world, process)?;
    report.why = format!("{name}: {}", report.why);
    Some(report)
}

/// Judges a publisher of whose failed requests nothing is known, or that has none.
fn without_request(name: &str, published: &Published) -> Report {
    let mut report = triage_figures(Figures::default(), !published.sampled);
    report.figures.allocated = Some(published.allocated);
    report.figures.unallocated = Some(published.cached);
    if published.ooms > 0 {
        let requests = units::plural(published.ooms, "request");
        report.why = format!("{name}: {requests} failed, and how much the last one asked for is not known");
        return report;
    }
    report.verdict = gpumem_triage::Verdict::Nothing;
    report.allocator = gpumem_triage::Allocator::None;
    report.fixes.clear();
    report.missing.clear();
    report.why = match published.largest() {
        Some(largest) => format!(
            "no request of {name} has failed. Its largest free block is {}: a larger one takes new memory from the device",
            units::bytes(largest)
        ),
        None => format!("no request of {name} has failed"),
    };
    report
}

/// The checklist: what has failed, who holds memory that no list shows, and what else fails as if memory ran out.
pub(crate) fn of_machine(model: &Model) -> Vec<Check> {
    let mut checks = Vec::new();
    let findings: Vec<_> = model.findings().collect();
    for finding in findings.iter().take(FINDINGS) {
        let verdict = match finding.severity {
            Severity::Info => Verdict::Note,
            Severity::Warning => Verdict::Note,
            Severity::Error => Verdict::Bad,
        };
        let todo = match finding.process {
            Some(id) if finding.severity > Severity::Info => {
                let pid = model
                    .world()
                    .processes
                    .iter()
                    .find(|process| process.id == id)
                    .map(|process| process.pid);
                pid.map_or(String::new(), |pid| format!("gpumem-tui triage --pid {pid}"))
            }
            _ => String::new(),
        };
        checks.push(not("finding", verdict, finding.text.clone(), todo));
    }
    if findings.len() > FINDINGS {
        checks.push(not(
            "finding",
            Verdict::Note,
            format!("{} more", findings.len() - FINDINGS),
            "gpumem-tui, key m",
        ));
    }
    if findings.is_empty() {
        checks.push(good("findings", "none"));
    }
    checks.extend(sharing(model));
    let listed: Vec<u32> = model.world().processes.iter().map(|process| process.pid).collect();
    checks.extend(of_host(&HostState::gather(&gpumem_probe::Root::default()), &listed));
    checks
}

/// Says where a GPU is shared by limits of their own: what is free for a program is less than what is free of the card.
fn sharing(model: &Model) -> Option<Check> {
    let world = model.world();
    let parts = world.devices.iter().filter(|device| device.part_of.is_some()).count() as u64;
    let clients = world
        .processes
        .iter()
        .filter(|process| process.mps && process.state.alive())
        .count() as u64;
    let mut seen = Vec::new();
    let mut todo = Vec::new();
    if parts > 0 {
        seen.push(format!(
            "{}: a process can use only its own device's memory",
            units::plural(parts, "MIG device")
        ));
        todo.push("nvidia-smi -L");
    }
    if clients > 0 {
        seen.push(format!(
            "{} of MPS: each may have a limit of its own",
            units::plural(clients, "client")
        ));
        todo.push("echo get_default_device_pinned_mem_limit 0 | nvidia-cuda-mps-control");
    }
    (!seen.is_empty()).then(|| not("sharing", Verdict::Note, seen.join("\n"), todo.join("\n")))
}

fn of_host(state: &HostState, listed: &[u32]) -> Vec<Check> {
    let hidden: Vec<&MemoryHolder> = state
        .holders
        .iter()
        .filter(|holder| !listed.contains(&holder.pid))
        .collect();
    let holders = match &hidden[..] {
        [] => good(
            "holders",
            format!(
                "{} have a GPU open, all of them listed",
                units::plural(state.holders.len() as u64, "program")
            ),
        ),
        some => {
            let names: Vec<String> = some.iter().take(6).map(|holder| named(holder)).collect();
            let more = some.len().saturating_sub(6);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            let pids: Vec<String> = some.iter().take(6).map(|holder| holder.pid.to_string()).collect();
            not(
                "holders",
                Verdict::Note,
                format!(
                    "have a GPU open, but NVML does not list them: {}{more}",
                    names.join(", ")
                ),
                format!("ps -o pid,ppid,stat,user,etime,cmd -p {}", pids.join(",")),
            )
        }
    };
    let mut checks = vec![holders];
    let stuck: Vec<String> = state
        .holders
        .iter()
        .filter(|holder| holder.is_stuck())
        .map(named)
        .collect();
    if !stuck.is_empty() {
        checks.push(not(
            "stuck",
            Verdict::Bad,
            format!(
                "zombies, or stuck in the driver (state D): they hold memory until they exit: {}",
                stuck.join(", ")
            ),
            "a zombie ends with its parent; a process in state D ends when the driver answers, or with a restart",
        ));
    }
    checks.push(match &state.kernel {
        Ok(faults) if faults.is_empty() => good(
            "kernel log",
            "no GPU error (Xid), and no process killed by the OOM killer",
        ),
        Ok(faults) => not(
            "kernel log",
            Verdict::Bad,
            faults.join("\n"),
            "dmesg -T | grep -iE 'nvrm|xid|oom|killed process'",
        ),
        Err(why) => not(
            "kernel log",
            Verdict::Note,
            why,
            "sudo dmesg -T | grep -iE 'nvrm|xid|oom'",
        ),
    });
    if let Some(memory) = &state.memory {
        let text = format!(
            "{} available of {}",
            units::bytes(memory.available),
            units::bytes(memory.total)
        );
        checks.push(match memory.available < memory.total / 20 {
            true => not("host memory", Verdict::Bad, text, "ps aux --sort=-rss | head"),
            false => good("host memory", text),
        });
    }
    if let Some(killed) = state.oom_kills.filter(|killed| *killed > 0) {
        checks.push(not(
            "OOM killer",
            Verdict::Bad,
            format!(
                "has ended {} since the start of the machine or of this container",
                units::plural(killed, "program")
            ),
            "journalctl -k | grep -i 'killed process'",
        ));
    }
    if let Some(shared) = &state.shared_memory {
        let stale = match shared.leftovers {
            0 => String::new(),
            n => format!(
                ", {} of NCCL or PyTorch in it ({})",
                units::plural(n, "file"),
                units::bytes(shared.leftover_bytes)
            ),
        };
        let text = format!(
            "{} free of {}{stale}",
            units::bytes(shared.free),
            units::bytes(shared.total)
        );
        checks.push(match shared.free < LITTLE_SHARED {
            true => not(
                "/dev/shm",
                Verdict::Bad,
                text,
                "ls -la /dev/shm; in a container: docker run --shm-size=16g",
            ),
            false => good("/dev/shm", text),
        });
    }
    let limit = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), units::bytes);
    let text = format!(
        "locked memory {}, address space {}",
        limit(state.locked),
        limit(state.address_space)
    );
    checks.push(
        match state.locked.is_some_and(|bytes| bytes < 1 << 20) || state.address_space.is_some() {
            true => not(
                "limits",
                Verdict::Note,
                text,
                "ulimit -l unlimited; ulimit -v unlimited",
            ),
            false => good("limits", text),
        },
    );
    checks
}

fn named(holder: &MemoryHolder) -> String {
    format!("{} ({}, state {})", holder.pid, holder.name, holder.state)
}

#[cfg(test)]
mod tests {
    use gpumem_probe::Reading;

    use super::*;
    use crate::model::{DeviceKey, Owner, ProcessId, ProcessState};

    fn holder(pid: u32, state: char) -> MemoryHolder {
        MemoryHolder {
            pid,
            name: "python".into(),
            state,
        }
    }

    #[test]
    fn holders_that_no_list_shows_are_named() {
        let state = HostState {
            holders: vec![holder(7, 'S'), holder(8, 'Z'), holder(9, 'D')],
            ..HostState::default()
        };
        let checks = of_host(&state, &[7]);
        let seen: Vec<_> = checks
            .iter()
            .map(|check| (check.name, check.verdict, check.seen.as_str()))
            .collect();
        assert_eq!(
            seen[..2],
            [
                (
                    "holders",
                    Verdict::Note,
                    "have a GPU open, but NVML does not list them: 8 (python, state Z), 9 (python, state D)"
                ),
                (
                    "stuck",
                    Verdict::Bad,
                    "zombies, or stuck in the driver (state D): they hold memory until they exit: 8 (python, state Z), 9 (python, state D)"
                ),
            ]
        );
    }

    #[test]
    fn shared_gpus_are_named() {
        let mut model = Model::default();
        assert_eq!(sharing(&model), None);
        model.live.processes = vec![Process {
            id: ProcessId {
                device: DeviceKey::NvmlIndex(0),
                owner: Owner::Pid(7, 0),
            },
            pid: 7,
            device_label: "GPU 0".into(),
            user: String::new(),
            command: String::new(),
            label: String::new(),
            job: String::new(),
            rank: None,
            world_size: None,
            parent: None,
            nvml: Reading::NotSupported,
            figures: None,
            managed: Reading::NotSupported,
            state: ProcessState::NotPublishing,
            stopped: None,
            mps: true,
            simulated: false,
            failing: None,
            ended: None,
            hints: [].into(),
        }];
        let check = sharing(&model);
        let seen = check.map(|check| (check.name, check.seen));
        assert_eq!(
            seen,
            Some((
                "sharing",
                "1 client of MPS: each may have a limit of its own".to_owned()
            ))
        );
    }
}
