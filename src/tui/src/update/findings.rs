//! Derives findings, sentences for the user, from the figures.

mod contexts;
mod growth;
mod hints;
mod ranks;

use std::collections::HashMap;

use gpumem_channel::pool_called;
use gpumem_probe::{Memory, Reading};
use gpumem_text::units;

use crate::model::{
    About, COUNTED_ABOVE, Causes, Device, DeviceKey, DeviceState, Figures, Finding, Inputs, KnownCauses, LeftOut,
    Nanos, Origin, Problem, ProblemKind, Process, ProcessId, ProcessState, SECOND, Severity, World, first_fix,
};

use super::devices::{Told, told};

/// Least bytes of cache that a finding is made for.
const MIN_CACHE: u64 = 64 << 20;

/// Least bytes outside of a process's allocator that a finding is made for. A context with the kernels of many libraries takes less
/// (0.5 to 0.9 GiB were measured on an H200).
const MIN_OUTSIDE: u64 = 1 << 30;

/// Least bytes without a known owner that a finding is made for.
const MIN_UNOWNED: u64 = 1 << 30;

/// Most users with hidden channels that have a finding each. More share one.
const USERS: usize = 4;

/// How long a failed request is an error. After that it is a warning.
const FRESH: Nanos = 60 * SECOND;

/// How long ago a process failed or ended whose finding is an older one. The last one that failed is left out.
const OLD: Nanos = 300 * SECOND;

/// Most processes that the line for older findings names.
const NAMED: usize = 3;

/// Added to the bytes at stake of a failed request, so that it ranks before what might happen.
const HAPPENED: u64 = 1 << 62;

/// The bytes at stake, which rank a finding among those of its severity, and the finding.
type Ranked = (u64, Finding);

/// Returns all findings, worst first, with the number of older ones, which come last, and the line that may stand for them. At equal severity, live processes come before ended ones, and then most bytes at stake come
/// first.
///
/// For a fragmented cache the bytes at stake are all reserved bytes. The cached bytes change with every sample, and findings that
/// keep changing places cannot be read.
pub(super) fn of(world: &World, inputs: &Inputs) -> (Vec<Finding>, (usize, Option<Finding>)) {
    let mut findings: Vec<Ranked> = Vec::new();
    if let Some(text) = world.nvml_failure() {
        findings.push((u64::MAX, finding(Severity::Error, None, text)));
    }
    let told: HashMap<DeviceKey, Told<'_>> = told(inputs).map(|told| (told.key, told)).collect();
    for device in &world.devices {
        about_device(device, &mut findings);
        let told = told.get(&device.key).copied();
        if let Some(Reading::Value(memory)) = told.map(|told| told.memory) {
            findings.extend(about_doubted_figures(device, memory));
        }
        if let Some(bytes) = told.and_then(|told| unowned_memory(told, device, &world.processes)) {
            let text = format!(
                "{}: {} are in use, but by no process NVML lists: a container, a process that ended, or the driver",
                device.label,
                units::bytes(bytes)
            );
            findings.push((bytes, finding(Severity::Info, None, text)));
        }
        // A pending list is not a problem.
        let list = told.map(|told| told.processes);
        if let Some(list @ (Reading::NotSupported | Reading::NoPermission | Reading::Failed(_))) = list {
            let why = match list {
                Reading::NoPermission => "no permission to list processes".to_owned(),
                _ => format!("NVML cannot list processes ({})", list.reason().unwrap_or_default()),
            };
            let text = format!("{}: {why}: only those that publish are listed", device.label);
            findings.push((0, finding(Severity::Warning, None, text)));
        }
    }
    let now = world.channels_at().unwrap_or(0);
    let devices: HashMap<DeviceKey, &Device> = world.devices.iter().map(|d| (d.key, d)).collect();
    for process in world.processes.iter().filter(|p| !world.past.contains(&p.id)) {
        let device = devices.get(&process.id.device).copied();
        let name = world.name_of(process);
        about_process(world, process, (&name, device, now), &mut findings);
        if let Some(outside) = world.outside_of(process).filter(|outside| outside.bytes >= MIN_OUTSIDE) {
            let text = format!(
                "{name}: {} outside of {} allocator: {}",
                units::bytes(outside.bytes),
                if process.figures.as_ref().is_some_and(|f| f.sampled) {
                    "PyTorch's"
                } else {
                    "its"
                },
                outside.parts()
            );
            findings.push((outside.bytes, finding(Severity::Info, Some(process.id), text)));
        }
    }
    for channel in world.published.iter().filter(|c| c.snapshot.untracked_blocks > 0) {
        let snapshot = &channel.snapshot;
        let text = format!(
            "{}: {} blocks ({}) do not fit into its channel's table and are not on the map",
            channel.pid.unwrap_or(snapshot.identity.pid),
            units::count(snapshot.untracked_blocks),
            units::bytes(snapshot.untracked_bytes)
        );
        findings.push((snapshot.untracked_bytes, finding(Severity::Info, None, text)));
    }
    findings.extend(ranks::about_ranks(world));
    findings.extend(contexts::about_contexts(world));
    findings.extend(hints::about_hints(world));
    findings.extend(growth::about_growth(world));
    findings.extend(about_managed(world));
    findings.extend(about_left_out(&world.left_out).into_iter().map(|f| (0, f)));
    let of = |kind| world.problems.iter().filter(move |p| p.kind == kind);
    for place in of(ProblemKind::Directory) {
        let text = format!(
            "channel directory {} is refused: {}. Programs that publish there are not shown",
            place.file, place.text
        );
        findings.push((0, finding(Severity::Warning, None, text)));
    }
    for place in of(ProblemKind::Overflow) {
        let text = format!("{}: {}. Some publishers may not be shown", place.file, place.text);
        findings.push((u64::MAX, finding(Severity::Warning, None, text)));
    }
    for removed in of(ProblemKind::Removed) {
        let text = format!("channel file {}: {}", removed.file, removed.text);
        findings.push((0, finding(Severity::Warning, None, text)));
    }
    let files: Vec<&Problem> = of(ProblemKind::File).collect();
    if !files.is_empty() {
        let text = match files.as_slice() {
            [one] => format!("channel {} cannot be read: {}", one.file, one.text),
            many => format!(
                "{} channel files cannot be read: gpumem-tui doctor says why",
                many.len()
            ),
        };
        findings.push((0, finding(Severity::Info, None, text)));
    }
    let processes: HashMap<ProcessId, &Process> = world.processes.iter().map(|p| (p.id, p)).collect();
    let its = |finding: &Finding| processes.get(&finding.process?).copied();
    let newest = newest_failure(&world.processes, now);
    let old = |finding: &Finding| {
        let process = its(finding).filter(|process| newest != Some(process.id))?;
        told_of(finding.about, process).filter(|at| now.checked_sub(*at).is_some_and(|age| age >= OLD))
    };
    findings.sort_by_cached_key(|(bytes, finding)| {
        // The newest of the older ones comes first.
        std::cmp::Reverse(match old(finding) {
            None => (true, rank(finding, its(finding)), *bytes),
            Some(at) => (false, (0, false), at),
        })
    });
    let findings: Vec<Finding> = findings.into_iter().map(|(_, finding)| finding).collect();
    let older: Vec<&Finding> = findings.iter().filter(|finding| old(finding).is_some()).collect();
    let line = (older.len() > 1).then(|| {
        let mut names: Vec<String> = Vec::new();
        for process in older.iter().filter_map(|finding| its(finding)) {
            let name = world.name_of(process);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        names.truncate(NAMED);
        let text = format!(
            "{} older findings, of failures and ends over {} ago: {}{more}",
            older.len(),
            units::span(OLD),
            names.join(", ")
        );
        finding_about(About::Older, Severity::Info, None, text)
    });
    let older = older.len();
    (findings, (older, line))
}

/// How far back the movement of managed memory is looked at.
const RECENT: Nanos = 10 * SECOND;
/// How much of that must have been seen.
const LEAST_SEEN: Nanos = 3 * SECOND;
/// Faults a second from which on a program mostly waits for them: one costs 10 to 30 microseconds on the CPU, and a batch of 256 on a GPU
/// about as many.
const STALLING: [u64; 2] = [10_000, 100_000];

/// Returns findings about managed memory. Their figures are rounded down to powers of two, so that they do not change with every sample.
pub(super) fn about_managed(world: &World) -> Vec<Ranked> {
    let rounded = |n: u64| 1u64 << n.max(1).ilog2();
    let mut findings = Vec::new();
    for (target, _, sums) in world.managed.with_memory() {
        let Some(row) = world.processes.iter().find(|p| p.pid == target.pid && p.state.alive()) else {
            continue;
        };
        let (name, size) = (world.name_of(row), units::bytes(sums.bytes));
        let mut say = |severity, text| {
            findings.push((sums.bytes, finding_about(About::Managed, severity, Some(row.id), text)));
        };
        if sums.bytes >= MIN_CACHE && sums.origin == Origin::PagedOptimizer {
            say(
                Severity::Info,
                format!(
                    "{name}: {size} are managed: a paged optimizer of bitsandbytes keeps its state there, and it moves at each step"
                ),
            );
        } else if sums.bytes >= MIN_CACHE && sums.origin == Origin::PyTorch {
            let text = format!(
                "{name}: {size} are managed, which PyTorch itself does not use: a library or an extension does"
            );
            say(Severity::Info, text);
        }
        let evicted: u64 = world
            .managed
            .causes_of(*target)
            .and_then(Causes::known)
            .map_or(0, KnownCauses::evicted_bytes);
        if evicted > 0 {
            let least = units::bytes(rounded(evicted));
            let text = format!(
                "{name}: the driver evicts its managed memory: what it uses does not fit the GPU by at least {least}. Use less, or free the \
                 memory of others"
            );
            say(Severity::Warning, text);
        }
        let Some((seen, moved)) = world.managed.past.get(target).and_then(|past| past.within(RECENT)) else {
            continue;
        };
        if seen < LEAST_SEEN {
            continue;
        }
        let both = moved.to_gpu.min(moved.to_cpu);
        if both > sums.bytes {
            let times = match rounded(both / sums.bytes) {
                1 => "once".to_owned(),
                n => format!("{n} times"),
            };
            let advice = match moved.cpu_faults + moved.gpu_faults {
                0 => "by prefetch calls: keep it where it is used most, or use two buffers",
                _ => {
                    "on page faults: prefetch it (cudaMemPrefetchAsync), advise where it stays (preferred location, \
                     read-mostly), or copy it yourself"
                }
            };
            let text = format!(
                "{name}: its managed memory ({size}) went to the GPU and back at least {times} in 10 s {advice}"
            );
            say(Severity::Warning, text);
        }
        let rate = |faults: u64| (u128::from(faults) * u128::from(SECOND) / u128::from(seen)) as u64;
        for (who, faults, least) in [
            ("CPU", moved.cpu_faults, STALLING[0]),
            ("GPU", moved.gpu_faults, STALLING[1]),
        ] {
            if rate(faults) >= least {
                let text = format!(
                    "{name}: stalls on at least {} page faults of the {who} a second: prefetch before the {who} uses the memory",
                    units::count(rounded(rate(faults)))
                );
                say(Severity::Warning, text);
            }
        }
    }
    findings
}

/// Returns the rank of a finding. A finding about a process that has ended ranks one severity lower, since less can be done about
/// it, unless it ran out of memory a short while ago. At equal severity it comes after those about live processes.
fn rank(finding: &Finding, its: Option<&Process>) -> (u8, bool) {
    let ended = its.is_some_and(|p| !p.state.alive());
    let lower = ended && !its.is_some_and(Process::has_just_failed);
    let severity = match finding.severity {
        Severity::Info => 1,
        Severity::Warning => 2,
        Severity::Error => 3,
    };
    (severity - u8::from(lower), !ended)
}

/// Returns when it was what a finding tells of, if that is a moment.
fn told_of(about: About, process: &Process) -> Option<Nanos> {
    match about {
        About::End => process.ended.map(|ended| ended.at),
        About::Failure => Some(process.figures.as_ref()?.ran_out.as_ref()?.at),
        _ => None,
    }
}

/// Returns the process that failed last, if that was within the last hour: whoever looks is probably here for it.
fn newest_failure(processes: &[Process], now: Nanos) -> Option<ProcessId> {
    let failed = processes
        .iter()
        .filter_map(|process| Some((told_of(About::Failure, process)?, process.id)));
    let recent = failed.filter(|(at, _)| now.checked_sub(*at).is_some_and(|age| age < 3600 * SECOND));
    recent.max().map(|(_, id)| id)
}

/// Returns findings about other users' channels that are not shown: one for each user, or one for all if they are many.
fn about_left_out(users: &[LeftOut]) -> Vec<Finding> {
    let say = |who: String, users: &[LeftOut]| {
        let sum = |of: fn(&LeftOut) -> usize| users.iter().map(of).sum::<usize>() as u64;
        let (hidden, all) = (sum(|u| u.hidden_channels), sum(|u| u.channels));
        let unseen = sum(|u| u.hidden_devices);
        let channels = match hidden {
            0 => None,
            _ => Some(format!("{} of {} channels", units::count(hidden), units::count(all))),
        };
        let devices = match unseen {
            0 => None,
            1 => Some("1 device".to_owned()),
            n => Some(format!("{} devices", units::count(n))),
        };
        let what: Vec<String> = channels.into_iter().chain(devices).collect();
        let are = if (hidden, unseen) == (0, 1) { "is" } else { "are" };
        finding(
            Severity::Warning,
            None,
            format!(
                "{who}: {} {are} not shown, because they exceed the limit for one user",
                what.join(" and ")
            ),
        )
    };
    match users.len() {
        0..=USERS => users
            .iter()
            .map(|user| say(format!("user {}", user.user), std::slice::from_ref(user)))
            .collect(),
        n => vec![say(format!("{} users", units::count(n as u64)), users)],
    }
}

fn about_device(device: &Device, findings: &mut Vec<Ranked>) {
    if let DeviceState::Lost(text) = &device.state {
        let old = match device.memory {
            Reading::Value(_) => ". Its figures are the last known",
            _ => "",
        };
        let text = format!("{} is lost: {text}{old}", device.label);
        findings.push((u64::MAX, finding(Severity::Error, None, text)));
    }
    if let (Reading::Value(memory), DeviceState::Present) = (&device.memory, &device.state)
        && memory.free < memory.total / 50
    {
        let (free, total) = (units::bytes(memory.free), units::bytes(memory.total));
        let text = format!("{}: {free} of {total} left", device.label);
        findings.push((memory.total, finding(Severity::Warning, None, text)));
    }
}

/// Returns a finding about figures of the driver that cannot be right.
fn about_doubted_figures(device: &Device, memory: &Memory) -> Option<Ranked> {
    let figures: Vec<String> = memory
        .doubted
        .figures()
        .map(|(what, said)| format!("{} {what}", units::bytes(said)))
        .collect();
    let text = format!(
        "{}: NVML says {} of {}, which is impossible and is ignored",
        device.label,
        figures.join(" and "),
        units::bytes(memory.total)
    );
    (!figures.is_empty()).then(|| (0, finding(Severity::Info, None, text)))
}

/// Returns the used bytes of a device that belong to no known process, if they are many. `None` also if that is not known: a
/// list or a figure is missing, the device has MIG devices, or it uses the host's memory.
fn unowned_memory(told: Told<'_>, device: &Device, processes: &[Process]) -> Option<u64> {
    let (Reading::Value(memory), Reading::Value(list)) = (told.memory, told.processes) else {
        return None;
    };
    if device.state != DeviceState::Present || !told.exclusive {
        return None;
    }
    let mut known = 0u64;
    for process in list {
        known = known.saturating_add(*process.used.value()?);
    }
    // Publishers are known even if NVML does not list them.
    let counted = |p: &Process| match &p.nvml {
        Reading::Value(_) => true,
        Reading::Failed(why) => why == COUNTED_ABOVE,
        _ => false,
    };
    let unlisted = |p: &&Process| p.id.device == device.key && p.state.alive() && !counted(p);
    for process in processes.iter().filter(unlisted) {
        known = known.saturating_add(process.figures.as_ref()?.reserved);
    }
    // A doubted figure proves nothing.
    let used = memory.used.filter(|_| memory.doubted.used.is_none())?;
    // Managed memory is not in the figures of processes, and has a part of its own.
    let managed = device.memory.value().map_or(0, |parts| parts.managed);
    let rest = used.saturating_sub(known).saturating_sub(managed);
    (rest > MIN_UNOWNED.max(memory.total / 50)).then_some(rest)
}

fn about_process(
    world: &World,
    process: &Process,
    (name, device, now): (&str, Option<&Device>, Nanos),
    findings: &mut Vec<Ranked>,
) {
    let mut say = |about, severity, bytes, text| {
        findings.push((bytes, finding_about(about, severity, Some(process.id), text)));
    };
    if let ProcessState::Inconsistent(error) = &process.state {
        say(About::Process, Severity::Warning, u64::MAX, format!("{name}: {error}"));
    }
    if let ProcessState::Disputed(claim) = &process.state {
        say(About::Process, Severity::Warning, 0, format!("{name}: {claim}"));
    }
    let Some(figures) = &process.figures else { return };
    if process.state == ProcessState::Died {
        let text = format!("{name} died holding {}", units::bytes(figures.allocated));
        say(About::End, Severity::Info, figures.allocated, text);
    }
    if figures.ooms > 0 {
        let (severity, text) = about_failures(world, process, figures, now);
        let when = process
            .ended
            .map(|ended| format!(" {}", units::ago(ended.minutes * 60 * SECOND)));
        let ended = match process.state {
            ProcessState::Exited => format!(", exited{}", when.unwrap_or_default()),
            ProcessState::Died => format!(", died{}", when.unwrap_or_default()),
            _ => String::new(),
        };
        // In an order that new failures do not change.
        say(About::Failure, severity, HAPPENED, format!("{name}{ended}: {text}"));
    }
    let unseen = figures.cached.saturating_sub(figures.pending);
    if process.state.alive() && !figures.mapped && unseen >= MIN_CACHE.max(figures.reserved / 4) {
        let text = format!(
            "{name}: {} of {} reserved are cached. Blocks (key 2) shows in what pieces",
            units::bytes(figures.cached),
            units::bytes(figures.reserved)
        );
        say(About::Cache, Severity::Info, figures.reserved, text);
    }
    if process.state.alive() && !figures.stitched && cache_is_fragmented(figures) {
        // Cached includes pending, as everywhere else.
        let [cached, pending, largest] = [figures.cached, figures.pending, figures.largest_free].map(units::bytes);
        let pending = match figures.pending {
            0 => String::new(),
            _ => format!(" ({pending} of it pending)"),
        };
        let (severity, budget, next) = next_larger(figures, device);
        let text = format!("{name}: {cached} cached{pending}{budget}: requests over {largest} {next}");
        say(About::Cache, severity, figures.reserved, text);
    }
}

/// Describes failed requests, with severity: an error while the last one is recent, then a warning. What was served since is told only
/// then, or a program that fails and goes on in turn would have a line that changes all the time.
fn about_failures(world: &World, process: &Process, figures: &Figures, now: Nanos) -> (Severity, String) {
    // The finding then has the time at which the process ended.
    let dated = process.ended.is_some();
    let times = match figures.ooms {
        1 => "ran out of memory".to_owned(),
        n => format!("ran out of memory {} times", units::count(n)),
    };
    let Some(last) = &figures.ran_out else {
        return (Severity::Warning, times);
    };
    // A time in the future is of another clock, so its age is not known.
    let age = now.checked_sub(last.at);
    let is_fresh = age.is_some_and(|age| age < FRESH);
    let served = last.served && !is_fresh;
    let when = match age.filter(|_| !is_fresh && !dated) {
        Some(age) => format!(", {}", units::ago(age)),
        None => String::new(),
    };
    let who = last.tag.as_ref().map(|tag| format!("{tag} ")).unwrap_or_default();
    let mut text = format!("{times}{when}: {who}tried to allocate {}", units::bytes(last.requested));
    if let Some(pool) = &last.pool {
        text.push_str(&format!(" in {}", pool_called(pool)));
    }
    if let Some(free) = last.device_free {
        text.push_str(&format!(", the device had {} free", units::bytes(free)));
    }
    if let Some(largest) = last.largest_free {
        text.push_str(&format!(", largest free block {}", units::bytes(largest)));
    }
    if let Some(budget) = figures.budget {
        text.push_str(&format!(", budget {}", units::bytes(budget)));
    }
    if served {
        text.push_str("; a request of that size succeeded since");
    } else if let Some(fix) = first_fix(world, process, last) {
        text.push_str(&format!(". Fix: {fix}"));
    }
    let severity = if is_fresh { Severity::Error } else { Severity::Warning };
    (severity, text)
}

/// Predicts a request that is larger than the largest free block. Returns a severity, the budget if that is what would refuse
/// it, and the prediction.
fn next_larger(figures: &Figures, device: Option<&Device>) -> (Severity, String, &'static str) {
    let fails = "fail unless the cache is released";
    // The request needs more than the largest free block, which is more than the budget leaves.
    if let Some(budget) = figures.budget
        && budget.saturating_sub(figures.reserved) <= figures.largest_free
    {
        return (Severity::Warning, format!(", budget {}", units::bytes(budget)), fails);
    }
    let left = device.and_then(|d| d.memory.value()).map(|memory| memory.free);
    match left {
        Some(left) if left <= figures.largest_free => (Severity::Warning, String::new(), fails),
        _ => (Severity::Info, String::new(), "take new memory"),
    }
}

/// Checks whether much is cached and no request of half of it could be served from it. Pending blocks do not count.
fn cache_is_fragmented(figures: &Figures) -> bool {
    let free = reusable(figures);
    figures.complete && free >= MIN_CACHE.max(figures.reserved / 20) && figures.largest_free < free / 2
}

/// Returns the cached bytes that can be reused at once.
fn reusable(figures: &Figures) -> u64 {
    figures.cached.saturating_sub(figures.pending)
}

fn finding(severity: Severity, process: Option<ProcessId>, text: String) -> Finding {
    let about = process.map_or(About::Machine, |_| About::Process);
    finding_about(about, severity, process, text)
}

fn finding_about(about: About, severity: Severity, process: Option<ProcessId>, text: String) -> Finding {
    Finding {
        severity,
        process,
        about,
        text,
    }
}
