//! Derives the world from the newest samples: NVML's GPUs and processes joined with channels.
//!
//! Devices are joined by UUID and by nothing else: `CUDA_VISIBLE_DEVICES` renumbers indexes. Processes are joined by
//! pid in our namespace on the same device; a channel whose start time contradicts the process table belongs to an
//! earlier process of that pid and is not joined.

use std::collections::{BTreeSet, HashMap};

use gpumem_channel::{Identity, Life};
use gpumem_probe::{Process as HostProcess, Reading};

use crate::model::{
    Basis, COUNTED_ABOVE, ChannelKey, Device, DeviceKey, DeviceState, Inputs, Model, Owner, Point, Process, ProcessId,
    SourceId, World,
};

use super::devices::{Told, devices, told};
use super::managed;
use super::row;

/// Rebuilds `model.live` from `model.inputs`, of which that of `fresh` is new. The devices' past moves on; what the world was before is returned without.
pub(super) fn rebuild(model: &mut Model, fresh: SourceId) -> World {
    let inputs = &model.inputs;
    let mut world = World::of(inputs);
    world.managed = std::mem::take(&mut model.live.managed);
    world.devices = devices(inputs, &mut model.live.devices);
    if let Some(only) = &model.setup.only {
        world.devices.retain(|d| only.matches(d));
    }
    managed::divide(&mut world.devices, inputs, &world.managed);
    advance(&mut world.devices, inputs, fresh);
    world.processes = processes(inputs, &world.devices, model);
    managed::join(&mut world.processes, &world.managed);
    world.past = past_ones(&world.processes, inputs);
    world.findings = super::findings::of(&world, inputs);
    std::mem::replace(&mut model.live, world)
}

/// Adds a point to the history of each device whose own source has a new sample, and files the new events.
fn advance(devices: &mut [Device], inputs: &Inputs, fresh: SourceId) {
    for device in devices.iter_mut().filter(|d| d.state == DeviceState::Present) {
        let Some(memory) = device.memory.value() else { continue };
        let own = match memory.basis {
            Basis::Driver => SourceId::Nvml,
            Basis::Publishers => SourceId::Channels,
        };
        if let Some(at) = inputs.times.of(own).filter(|_| own == fresh) {
            device.history.push(Point { at, memory: *memory });
        }
    }
}

/// Black boxes whose programs were never seen alive, but for those that are what somebody may be looking for: who ran out of memory and
/// ended a short while ago.
fn past_ones(processes: &[Process], inputs: &Inputs) -> BTreeSet<ProcessId> {
    let seen = |owner: &Owner| matches!(owner, Owner::Channel(key) if inputs.seen_alive.contains(key));
    processes
        .iter()
        .filter(|p| !p.state.alive() && !seen(&p.id.owner) && !p.has_just_failed())
        .map(|p| p.id)
        .collect()
}

/// Every process on a device that is shown.
fn processes(inputs: &Inputs, devices: &[Device], model: &Model) -> Vec<Process> {
    let people: HashMap<u32, &HostProcess> = inputs.processes.iter().map(|p| (p.pid, p)).collect();
    let labels: HashMap<DeviceKey, &Device> = devices.iter().map(|d| (d.key, d)).collect();
    let publishers = publishers(inputs);
    let mut rows = row::published(inputs, &labels, &people, &model.setup);
    // A black box names its program; with what arguments and by whom it ran was seen while it lived.
    let seen: HashMap<ProcessId, &Process> = model.live.processes.iter().map(|p| (p.id, p)).collect();
    for row in rows.iter_mut().filter(|row| !row.state.alive()) {
        if let Some(seen) = seen.get(&row.id) {
            row.user.clone_from(&seen.user);
            row.command.clone_from(&seen.command);
        }
    }
    // Of each living process on a device its rows, in their order.
    let mut its: HashMap<(DeviceKey, u32), Vec<usize>> = HashMap::new();
    for (place, row) in rows.iter().enumerate().filter(|(_, row)| row.state.alive()) {
        if let Owner::Channel(channel) = row.id.owner
            && let Some(pid) = publishers.get(&channel)
        {
            its.entry((row.id.device, *pid)).or_default().push(place);
        }
    }
    let mut identities: HashMap<u32, &Identity> = HashMap::new();
    for channel in inputs
        .channels
        .channels
        .iter()
        .filter(|c| c.snapshot.life == Life::Alive)
    {
        if let Some(pid) = channel.pid {
            identities.entry(pid).or_insert(&channel.snapshot.identity);
        }
    }
    for Told { key, processes, .. } in told(inputs) {
        let (Some(device), Reading::Value(list)) = (labels.get(&key), processes) else {
            continue;
        };
        for listed in list {
            let places = its.get(&(key, listed.pid)).map_or(&[][..], Vec::as_slice);
            for (nth, &place) in places.iter().enumerate() {
                rows[place].mps |= listed.mps;
                rows[place].nvml = match &listed.used {
                    Reading::Value(_) if nth > 0 => Reading::Failed(COUNTED_ABOVE.into()),
                    // Where it is not counted at all, that is so for each.
                    used => used.clone(),
                };
            }
            if places.is_empty() {
                let mut row = row::unpublished(listed, device, &people, &model.setup);
                // Who publishes on another device opened a context on this one, too.
                if let Some(identity) = identities.get(&listed.pid) {
                    row.job.clone_from(&identity.job);
                    row.rank = identity.rank;
                }
                rows.push(row);
            }
        }
    }
    rows
}

/// The processes of ours that channels' publishers were found to be. The pid that one claims for itself proves nothing: it
/// may be of another namespace, or of a process that ended long ago.
fn publishers(inputs: &Inputs) -> HashMap<ChannelKey, u32> {
    let channels = inputs.channels.channels.iter();
    channels.filter_map(|c| Some((c.key, c.pid?))).collect()
}
