//! The JSON report. `JSON.md` beside this crate's sources documents its fields.
//!
//! Rules of schema `gpumem/1`: sizes are bytes, shares are 0 to 1. A figure that is not available is `null`, and
//! `unavailable` of the same object says why. Fields are only ever added; a change of meaning changes the schema.

use std::collections::{BTreeMap, HashMap};

use gpumem_probe::Reading;

use super::shape::{
    Document, JsonDevice, JsonFigures, JsonFinding, JsonHint, JsonHost, JsonLeftOut, JsonMemory, JsonMig, JsonOutlier,
    JsonOutside, JsonPool, JsonProblem, JsonProcess, Reasons,
};
use crate::model::{
    Basis, Device, DeviceKey, DeviceKind, Figure, Figures, Finding, LeftOut, Model, Outlier, Partition, PoolShare,
    Problem, ProblemKind, Process, ProcessId, ProcessState, Severity, SourceId, hint_source, hint_text,
};
use crate::source;

/// Name and version of the format.
pub(crate) const SCHEMA: &str = "gpumem/1";

/// Formats the document as one line, without the newline.
///
/// # Errors
/// When it cannot be written as JSON, which is a bug.
pub(crate) fn document(model: &Model) -> Result<String, serde_json::Error> {
    let world = model.world();
    let mut sources = BTreeMap::new();
    for source in source::all() {
        if let Some(json) = source.json(model)? {
            sources.insert(source.name(), json);
        }
    }
    let processes: HashMap<ProcessId, &Process> = world.processes.iter().map(|p| (p.id, p)).collect();
    let labels: Labels<'_> = world.devices.iter().map(|d| (d.key, d.label.as_str())).collect();
    let finding = |f: &'_ Finding| processes.get(&f.process?).copied();
    serde_json::to_string(&Document {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        time_unix_ms: model.unix_ms(model.now),
        sampled_unix_ms: world
            .times
            .iter()
            .map(|(source, at)| (source_name(source), model.unix_ms(at)))
            .collect(),
        host: &model.setup.host,
        simulated: model.simulated(),
        sources,
        devices: world
            .devices
            .iter()
            .map(|d| device(d, &world.devices, &labels))
            .collect(),
        processes: model.listed().map(|p| process(p, model, &labels)).collect(),
        findings: model
            .findings()
            .map(|f| JsonFinding {
                severity: severity(f.severity),
                pid: finding(f).map(|p| p.pid),
                device: finding(f).and_then(|p| labels.get(&p.id.device).copied()),
                text: &f.text,
            })
            .collect(),
        unreadable_channels: world.problems.iter().map(problem).collect(),
        channels_not_shown: world.left_out.iter().map(left_out).collect(),
    })
}

/// Returns the name that a source has in the document.
fn source_name(source: SourceId) -> &'static str {
    match source {
        SourceId::Channels => "channels",
        SourceId::Managed => "uvm",
        SourceId::Nvml => "nvml",
        SourceId::Processes => "processes",
    }
}

/// Returns the figure. If there is none, adds the reason to `reasons`.
fn figure<T: Clone>(field: &'static str, reading: &Reading<T>, reasons: &mut Reasons) -> Option<T> {
    if let Some(why) = reading.reason() {
        reasons.insert(field, why);
    }
    reading.value().cloned()
}

fn device<'a>(device: &'a Device, all: &'a [Device], labels: &Labels<'a>) -> JsonDevice<'a> {
    let s = &device.sensors;
    let mut why = Reasons::new();
    if let Some(text) = device.state.why() {
        why.insert("state", text.to_owned());
    }
    if device.name.is_empty() {
        why.insert("name", "it was not reported".into());
    }
    let percent = |n: u32| f64::from(n) / 100.0;
    let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
    JsonDevice {
        label: &device.label,
        kind: match device.kind {
            DeviceKind::Nvml => "nvml",
            DeviceKind::Published => "published",
            DeviceKind::Simulated => "simulated",
        },
        simulated: device.kind == DeviceKind::Simulated,
        name: (!device.name.is_empty()).then_some(device.name.as_str()),
        uuid: device.uuid_text(),
        pci: (!device.pci.is_empty()).then_some(device.pci.as_str()),
        state: device.state.word(),
        publishers: device.publishers,
        memory_is_host_memory: device.shared_with_host,
        memory: figure("memory", &device.memory, &mut why).map(|parts| memory(device, parts)),
        utilization: figure("utilization", &s.utilization, &mut why).map(percent),
        memory_utilization: figure("memory_utilization", &s.memory_utilization, &mut why).map(percent),
        temperature_celsius: figure("temperature_celsius", &s.temperature, &mut why),
        power_watts: figure("power_watts", &s.power, &mut why).map(watts),
        power_limit_watts: figure("power_limit_watts", &s.power_limit, &mut why).map(watts),
        pcie_host_to_device_bytes_per_second: figure("pcie_host_to_device_bytes_per_second", &s.pcie_rx, &mut why),
        pcie_device_to_host_bytes_per_second: figure("pcie_device_to_host_bytes_per_second", &s.pcie_tx, &mut why),
        host_memory: device.host.map(|host| JsonHost {
            total: host.total,
            available: host.available,
            free: host.free,
        }),
        part_of: device.part_of.as_ref().and_then(|part| labels.get(&part.gpu).copied()),
        mig: all.iter().filter_map(|part| mig(part, device.key)).collect(),
        unavailable: why,
    }
}

fn memory(device: &Device, parts: Partition) -> JsonMemory {
    let driver = parts.basis == Basis::Driver;
    let mut why = Reasons::new();
    if let Some(reason) = device.driver_share_unknown() {
        why.insert("driver_reserved", reason.into());
    }
    if parts.host.is_none() {
        why.insert("host", host_unknown(device.shared_with_host).into());
    }
    let none = match driver {
        true => &["not_published"][..],
        false => &["other", "managed_at_most", "free"],
    };
    for field in none {
        why.insert(field, only_of(driver).into());
    }
    JsonMemory {
        total: parts.total,
        allocated: parts.allocated,
        cached: parts.cached,
        other: driver.then_some(parts.other),
        managed_at_most: driver.then_some(parts.managed),
        host: parts.host,
        driver_reserved: parts.driver,
        free: driver.then_some(parts.free),
        not_published: (!driver).then_some(parts.free),
        source: if driver { "driver" } else { "publishers" },
        skewed: parts.skewed,
        unavailable: why,
    }
}

/// Returns why the fields of the other source are null.
fn only_of(driver: bool) -> &'static str {
    match driver {
        true => "the driver counts everything: see other and free",
        false => "only programs that publish are counted here: see not_published",
    }
}

/// Returns why it is not known what the host's programs use.
fn host_unknown(shared: bool) -> &'static str {
    match shared {
        true => "NVML does not count all processes of the GPU: what the host's programs use is part of other",
        false => "the device has its own memory",
    }
}

/// Returns the entry of a MIG device in the list of its GPU; `None` if it belongs to another GPU.
fn mig(part: &Device, gpu: DeviceKey) -> Option<JsonMig<'_>> {
    let of = part.part_of.as_ref().filter(|of| of.gpu == gpu)?;
    let mut why = Reasons::new();
    if let Some(reason) = part.memory.reason() {
        for field in ["total", "used", "driver_reserved", "free"] {
            why.insert(field, reason.clone());
        }
    }
    let memory = part.memory.value();
    let counted = memory.filter(|m| m.basis == Basis::Driver);
    if memory.is_some_and(|m| m.driver.is_none()) {
        why.insert(
            "driver_reserved",
            "this driver does not report it: it is part of used".into(),
        );
    }
    if memory.is_some() && counted.is_none() {
        for field in ["used", "free"] {
            why.insert(field, "the driver does not report it".into());
        }
    }
    Some(JsonMig {
        index: of.index,
        name: &of.profile,
        uuid: &of.uuid,
        total: memory.map(|m| m.total),
        used: counted.map(Partition::used),
        driver_reserved: memory.and_then(|m| m.driver),
        free: counted.map(|m| m.free),
        unavailable: why,
    })
}

/// The labels of the devices in the document. The device of a black box may not be among them.
type Labels<'a> = HashMap<DeviceKey, &'a str>;

fn process<'a>(process: &'a Process, model: &'a Model, labels: &Labels<'a>) -> JsonProcess<'a> {
    let mut why = Reasons::new();
    let jobs = &model.world().jobs;
    let device = labels.get(&process.id.device).copied();
    if device.is_none() {
        let text = format!("{} is gone or not shown", process.device_label);
        why.insert("device", text);
    }
    let known = |text: &'_ str| !text.is_empty();
    let state = match &process.state {
        ProcessState::Publishing => "publishing",
        ProcessState::NotPublishing => "not-publishing",
        ProcessState::Exited => "exited",
        ProcessState::Died => "died",
        ProcessState::OtherUser => "other-user",
        ProcessState::Inconsistent(error) => {
            why.insert("state", error.clone());
            "inconsistent"
        }
        ProcessState::Disputed(claim) => {
            why.insert("state", claim.clone());
            "disputed"
        }
    };
    if process.figures.is_none() {
        why.insert("allocator", process.state.text().into());
    }
    let outside = model.world().outside_of(process);
    if outside.is_none() {
        let reason = match (&process.figures, process.nvml.reason()) {
            (Some(_), Some(reason)) => reason,
            (Some(_), None) => "the process has ended, or its device is simulated".to_owned(),
            (None, _) => process.state.text().to_owned(),
        };
        why.insert("outside", reason);
    }
    if process.stopped.is_none() {
        let reason = match process.state.alive() {
            true => "the process is not visible here",
            false => "the process is gone",
        };
        why.insert("stopped", reason.into());
    }
    if process.ended.is_none() {
        let reason = match process.state.alive() {
            true => "it has not ended",
            false => "its black box does not say",
        };
        why.insert("ended_unix_ms", reason.into());
    }
    for (field, text) in [
        ("user", &process.user),
        ("command", &process.command),
        ("label", &process.label),
    ] {
        if !known(text) {
            why.insert(field, "the process is not visible here".into());
        }
    }
    JsonProcess {
        pid: process.pid,
        device,
        simulated: process.simulated,
        mps_client: process.mps,
        user: known(&process.user).then_some(process.user.as_str()),
        command: known(&process.command).then_some(process.command.as_str()),
        label: known(&process.label).then_some(process.label.as_str()),
        job: known(&process.job).then_some(process.job.as_str()),
        rank: process.rank,
        ranks: jobs.get(process.id).map(|(job, _)| job.ranks.len()),
        outlier: jobs.outlier(process.id).map(outlier),
        state,
        stopped: process.stopped,
        ended_unix_ms: process.ended.map(|ended| model.unix_ms(ended.at)),
        nvml: figure("nvml", &process.nvml, &mut why),
        outside: outside.map(|outside| JsonOutside {
            bytes: outside.bytes,
            at_start: outside.at_start,
            users: outside.users.to_string(),
        }),
        managed: figure("managed", &process.managed, &mut why).map(|sums| sums.bytes),
        managed_on_cpu: figure("managed_on_cpu", &process.managed, &mut why).map(|sums| sums.on_cpu),
        allocator: process.figures.as_ref().map(figures),
        hints: process
            .hints
            .iter()
            .map(|hint| JsonHint {
                source: hint_source(hint),
                text: hint_text(hint, process.pid),
            })
            .collect(),
        unavailable: why,
    }
}

fn outlier(outlier: Outlier) -> JsonOutlier {
    JsonOutlier {
        figure: match outlier.figure {
            Figure::Reserved => "reserved",
            Figure::Allocated => "allocated",
            Figure::Cached => "cached",
            Figure::Nvml => "nvml",
        },
        above_median: outlier.above_median,
    }
}

fn figures(f: &Figures) -> JsonFigures<'_> {
    JsonFigures {
        reserved: f.reserved,
        budget: f.budget,
        allocated: f.allocated,
        requested: f.requested,
        cached: f.cached,
        pending: f.pending,
        peak_reserved: f.peak_reserved,
        peak_allocated: f.peak_allocated,
        inactive_split: f.inactive_split,
        free_total: f.free,
        largest_free: f.largest(),
        free_blocks: f.free_blocks,
        active_blocks: f.active_blocks,
        segments: f.segments,
        ooms: f.ooms,
        retries: f.retries,
        external_fragmentation: f.fragmentation(),
        internal_fragmentation: f.internal_fragmentation(),
        inactive_split_ratio: f.inactive_split_ratio(),
        map_complete: f.complete,
        pools: f.pools.iter().map(pool).collect(),
    }
}

fn pool(pool: &PoolShare) -> JsonPool<'_> {
    JsonPool {
        name: &pool.name,
        reserved: pool.reserved,
        free_total: pool.free.bytes,
        largest_free: pool.free.largest,
        segments: pool.segments,
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

fn left_out(user: &LeftOut) -> JsonLeftOut<'_> {
    JsonLeftOut {
        user: &user.user,
        uid: user.uid,
        channels: user.channels,
        channels_not_shown: user.hidden_channels,
        devices_not_shown: user.hidden_devices,
    }
}

fn problem(problem: &Problem) -> JsonProblem<'_> {
    JsonProblem {
        file: &problem.file,
        kind: match problem.kind {
            ProblemKind::File => "file",
            ProblemKind::Directory => "directory",
            ProblemKind::Overflow => "overflow",
            ProblemKind::Removed => "removed",
        },
        reason: &problem.text,
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
