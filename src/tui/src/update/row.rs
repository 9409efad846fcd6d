//! Builds a row of the process table from a channel, or from NVML's list alone.

use std::collections::HashMap;

use gpumem_channel::{DeviceKind as PublishedKind, Life};
use gpumem_probe::{GpuProcess, NvmlState, Process as HostProcess, Reading};

use crate::model::{
    Channel, DEVICE_NOT_LISTED, Device, DeviceKey, Ended, Failing, Inputs, NO_NVML, Nanos, Only, Owner,
    PROCESS_NOT_LISTED, Process, ProcessId, ProcessState, SECOND, Setup, SourceId,
};

use super::devices::told;

const MINUTE: Nanos = 60 * SECOND;

/// Builds a row for each channel and each of its devices that is shown. A black box has a row even if its device is not shown,
/// as a simulated device ends with its program, unless the user asked for other devices only.
pub(super) fn published(
    inputs: &Inputs,
    shown: &HashMap<DeviceKey, &Device>,
    host_processes: &HashMap<u32, &HostProcess>,
    setup: &Setup,
) -> Vec<Process> {
    let mut rows = Vec::new();
    let at = inputs.times.of(SourceId::Channels).unwrap_or(0);
    for channel in &inputs.channels.channels {
        for index in 0..channel.snapshot.devices.len() {
            let published = &channel.snapshot.devices[index].device;
            let key = DeviceKey::of(channel.key, index, published);
            let device = shown.get(&key);
            let simulated = published.kind == PublishedKind::Simulated;
            let wanted = setup.only.is_empty() || (simulated && setup.only.contains(&Only::Simulated));
            if device.is_some() || (channel.snapshot.life != Life::Alive && wanted) {
                let label = device.map_or_else(|| published.name.clone(), |d| d.label.clone());
                let mut row = of_channel(channel, index, key, label, host_processes, (setup, at));
                row.nvml = not_listed(&row, inputs);
                rows.push(row);
            }
        }
    }
    rows
}

fn of_channel(
    channel: &Channel,
    index: usize,
    key: DeviceKey,
    device_label: String,
    host_processes: &HashMap<u32, &HostProcess>,
    (setup, now): (&Setup, Nanos),
) -> Process {
    let identity = &channel.snapshot.identity;
    let figures = channel.figures.get(index).cloned().flatten();
    let state = match (channel.snapshot.life, &channel.error) {
        (Life::Closed, _) => ProcessState::Exited,
        (Life::Died, _) => ProcessState::Died,
        _ if channel.disputed.is_some() => ProcessState::Disputed(dispute(channel, setup)),
        (Life::Alive, Some(error)) => ProcessState::Inconsistent(error.clone()),
        (Life::Alive, None) if figures.is_none() => {
            let why = channel.snapshot.devices[index].contradiction;
            ProcessState::Inconsistent(why.unwrap_or("its figures cannot be read consistently").into())
        }
        (Life::Alive, None) if channel.snapshot.malformed_segments > 0 => {
            ProcessState::Inconsistent("parts of its block map contradict each other".into())
        }
        (Life::Alive, None) => ProcessState::Publishing,
    };
    let host = host_process(channel, host_processes).filter(|_| state.alive());
    let failing = Failing::of(figures.as_ref(), now);
    Process {
        id: ProcessId {
            device: key,
            owner: Owner::Channel(channel.key),
        },
        pid: channel.pid.unwrap_or(identity.pid),
        device_label,
        user: host.map_or_else(|| user_name(identity.uid, setup), |p| p.user.clone()),
        command: host.map_or_else(|| identity.program.clone(), |p| p.command.clone()),
        // Of Python, a program's own name is that of the interpreter, so the command line comes first.
        label: host.map_or_else(|| identity.program.clone(), |p| p.label.clone()),
        job: identity.job.clone(),
        rank: identity.rank,
        world_size: identity.world_size,
        parent: host.and_then(|p| p.parent),
        nvml: Reading::Pending,
        figures,
        managed: Reading::Pending,
        state,
        stopped: host.map(|p| p.stopped),
        mps: false,
        simulated: channel.snapshot.devices[index].device.kind == PublishedKind::Simulated,
        failing,
        ended: channel.last_sign.map(|at| Ended {
            at,
            minutes: now.saturating_sub(at) / MINUTE,
        }),
        hints: host.map_or_else(|| [].into(), |p| p.hints.clone()),
    }
}

/// Describes why a channel's claim to be a process does not hold.
fn dispute(channel: &Channel, setup: &Setup) -> String {
    let owner = user_name(channel.snapshot.identity.uid, setup);
    let process = channel.disputed.map_or_else(String::new, |pid| format!(" {pid}"));
    format!("the channel of user {owner} claims to be process{process}, which another user owns")
}

/// Returns the publisher's entry in the process table: the same pid and, if both are known, the same start time.
fn host_process<'a>(channel: &Channel, host_processes: &HashMap<u32, &'a HostProcess>) -> Option<&'a HostProcess> {
    let host = *host_processes.get(&channel.pid?)?;
    let started = channel.snapshot.identity.start_time;
    (started == 0 || host.start_time == 0 || host.start_time == started).then_some(host)
}

fn user_name(uid: u32, setup: &Setup) -> String {
    if uid == setup.uid {
        setup.user.clone()
    } else {
        uid.to_string()
    }
}

/// Returns why a publisher has no figure of NVML's if NVML does not list it.
fn not_listed(row: &Process, inputs: &Inputs) -> Reading<u64> {
    if row.simulated {
        return Reading::NotSupported;
    }
    if !row.state.alive() {
        return Reading::Failed("the process is gone".into());
    }
    match &inputs.nvml.state {
        NvmlState::Starting => return Reading::Pending,
        NvmlState::Missing => return Reading::Failed(NO_NVML.into()),
        NvmlState::Failed { error, .. } => return Reading::Failed(error.clone()),
        NvmlState::Ready => {}
    }
    let device = told(inputs).find(|device| device.key == row.id.device);
    match device.map(|device| device.processes) {
        None => Reading::Failed(DEVICE_NOT_LISTED.into()),
        Some(Reading::Value(_)) => Reading::Failed(PROCESS_NOT_LISTED.into()),
        Some(Reading::Pending) => Reading::Pending,
        Some(Reading::NotSupported) => Reading::NotSupported,
        Some(Reading::NoPermission) => Reading::NoPermission,
        Some(Reading::Failed(text)) => Reading::Failed(text.clone()),
    }
}

/// Builds a row for a process that is known only from NVML.
pub(super) fn unpublished(
    listed: &GpuProcess,
    device: &Device,
    host_processes: &HashMap<u32, &HostProcess>,
    setup: &Setup,
) -> Process {
    let host = host_processes.get(&listed.pid);
    let ours = setup.root || host.is_none_or(|p| p.user == setup.user);
    Process {
        id: ProcessId {
            device: device.key,
            owner: Owner::Pid(listed.pid, host.map_or(0, |p| p.start_time)),
        },
        pid: listed.pid,
        device_label: device.label.clone(),
        user: host.map_or_else(String::new, |p| p.user.clone()),
        command: host.map_or_else(String::new, |p| p.command.clone()),
        label: host.map_or_else(String::new, |p| p.label.clone()),
        job: String::new(),
        rank: None,
        world_size: None,
        parent: host.and_then(|p| p.parent),
        nvml: listed.used.clone(),
        figures: None,
        managed: Reading::Pending,
        state: if ours {
            ProcessState::NotPublishing
        } else {
            ProcessState::OtherUser
        },
        stopped: host.map(|p| p.stopped),
        mps: listed.mps,
        simulated: false,
        failing: None,
        ended: None,
        hints: host.map_or_else(|| [].into(), |p| p.hints.clone()),
    }
}
