//! Derives the world from the newest samples by joining NVML's GPUs and processes with channels.
//!
//! Devices are joined by UUID and by nothing else: `CUDA_VISIBLE_DEVICES` renumbers indexes. Processes are joined by
//! pid in our namespace on the same device; a channel whose start time contradicts the process table belongs to an
//! earlier process of that pid and is not joined.

use std::collections::{BTreeSet, HashMap, HashSet};

use gpumem_channel::{Identity, Life};
use gpumem_probe::{Process as HostProcess, Reading};

use crate::model::{
    Basis, BlackBoxes, COUNTED_ABOVE, ChannelKey, Device, DeviceKey, DeviceState, Inputs, Jobs, Model, Owner, Point,
    Process, ProcessId, SourceId, World,
};

use super::devices::{Told, devices, told};
use super::managed;
use super::row;

/// Rebuilds `model.live` from `model.inputs` after a new sample of `fresh`. Returns the previous world, whose histories have
/// been moved to the new one.
pub(super) fn rebuild(model: &mut Model, fresh: SourceId) -> World {
    let inputs = &model.inputs;
    let mut world = World::of(inputs);
    world.managed = std::mem::take(&mut model.live.managed);
    if fresh == SourceId::Channels {
        managed::publish(&mut world.managed, inputs.times.of(fresh).unwrap_or(0), inputs);
    }
    world.devices = devices(inputs, &mut model.live.devices);
    world.devices.retain(|device| model.setup.shows(device));
    managed::divide(&mut world.devices, inputs, &world.managed);
    advance(&mut world.devices, inputs, fresh);
    world.processes = processes(inputs, &world.devices, model);
    managed::join(&mut world.processes, &world.managed);
    world.growth = std::mem::take(&mut model.live.growth);
    grow(&mut world, fresh);
    world.jobs = Jobs::of(&world.processes);
    world.past = unlisted_black_boxes(&world.processes, inputs, model.setup.black_boxes);
    (world.findings, world.older) = super::findings::of(&world, inputs);
    std::mem::replace(&mut model.live, world)
}

/// Takes note of what each living process holds, if `fresh` tells that.
fn grow(world: &mut World, fresh: SourceId) {
    let World { growth, processes, .. } = world;
    if let Some(at) = world.times.of(fresh) {
        for process in processes.iter().filter(|process| process.state.alive()) {
            let held = match (&process.figures, fresh) {
                (Some(figures), SourceId::Channels) => Some(figures.allocated),
                (None, SourceId::Nvml) => process.nvml.value().copied(),
                _ => None,
            };
            if let Some(held) = held {
                growth.entry(process.id).or_default().note(at, held);
            }
        }
    }
    let there: HashSet<ProcessId> = processes.iter().filter(|p| p.state.alive()).map(|p| p.id).collect();
    growth.retain(|id, _| there.contains(id));
}

/// Adds a point to the history of each device whose figures come from `fresh`.
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

/// Returns the black boxes that are listed only on demand.
fn unlisted_black_boxes(processes: &[Process], inputs: &Inputs, listed: BlackBoxes) -> BTreeSet<ProcessId> {
    let seen = |owner: &Owner| matches!(owner, Owner::Channel(key) if inputs.seen_alive.contains(key));
    let is_listed = |process: &Process| match listed {
        BlackBoxes::Recent => seen(&process.id.owner) || process.has_just_failed(),
        BlackBoxes::SeenAlive => seen(&process.id.owner),
        BlackBoxes::None => false,
    };
    processes
        .iter()
        .filter(|process| !process.state.alive() && !is_listed(process))
        .map(|process| process.id)
        .collect()
}

/// Returns every process on a device that is shown.
fn processes(inputs: &Inputs, devices: &[Device], model: &Model) -> Vec<Process> {
    let host_processes: HashMap<u32, &HostProcess> = inputs.processes.iter().map(|p| (p.pid, p)).collect();
    let labels: HashMap<DeviceKey, &Device> = devices.iter().map(|d| (d.key, d)).collect();
    let publishers = publishers(inputs);
    let mut rows = row::published(inputs, &labels, &host_processes, &model.setup);
    // A black box has only the program's name. Its user and arguments were read while it was alive.
    let before: HashMap<ProcessId, &Process> = model.live.processes.iter().map(|p| (p.id, p)).collect();
    for row in rows.iter_mut().filter(|row| !row.state.alive()) {
        if let Some(before) = before.get(&row.id) {
            row.user.clone_from(&before.user);
            row.command.clone_from(&before.command);
            row.label.clone_from(&before.label);
        }
    }
    // The rows of each live process on a device, in order.
    let mut rows_of: HashMap<(DeviceKey, u32), Vec<usize>> = HashMap::new();
    for (place, row) in rows.iter().enumerate().filter(|(_, row)| row.state.alive()) {
        if let Owner::Channel(channel) = row.id.owner
            && let Some(pid) = publishers.get(&channel)
        {
            rows_of.entry((row.id.device, *pid)).or_default().push(place);
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
            let places = rows_of.get(&(key, listed.pid)).map_or(&[][..], Vec::as_slice);
            for (nth, &place) in places.iter().enumerate() {
                rows[place].mps |= listed.mps;
                rows[place].nvml = match &listed.used {
                    Reading::Value(_) if nth > 0 => Reading::Failed(COUNTED_ABOVE.into()),
                    // The reason for a missing figure holds for each row.
                    used => used.clone(),
                };
            }
            if places.is_empty() {
                let mut row = row::unpublished(listed, device, &host_processes, &model.setup);
                // A process that publishes on another device may have a context on this one.
                if let Some(identity) = identities.get(&listed.pid) {
                    row.job.clone_from(&identity.job);
                    row.rank = identity.rank;
                    row.world_size = identity.world_size;
                }
                rows.push(row);
            }
        }
    }
    rows
}

/// Returns the verified pids of publishers, by channel. The pid that a channel claims proves nothing: it may be of another
/// namespace, or of a process that ended long ago.
fn publishers(inputs: &Inputs) -> HashMap<ChannelKey, u32> {
    let channels = inputs.channels.channels.iter();
    channels.filter_map(|c| Some((c.key, c.pid?))).collect()
}
