//! Managed memory: keeps its samples, and joins it to processes and devices.

use std::collections::{BTreeMap, HashSet};

use gpumem_channel::{DeviceKind, Life};
use gpumem_probe::{Reading, Target};

use crate::event::Effect;
use crate::model::{
    Device, Inputs, ManagedSample, ManagedSums, ManagedWorld, Mark, MarkKind, Model, Nanos, Process, ProcessId,
    PublishedManaged, SourceId, View,
};

use super::devices::{Told, told};
use super::findings::about_managed;
use super::{derive, look::Look};

/// Keeps a sample. Counters change with each; the rest is derived anew only when sizes have changed.
pub(super) fn take(model: &mut Model, look: &Look, at: Nanos, sample: ManagedSample) -> Vec<Effect> {
    let sums = |sample: &ManagedSample| -> Vec<(Target, Result<ManagedSums, String>)> {
        let all = sample.processes.iter();
        all.map(|(target, process)| (*target, process.sums.clone())).collect()
    };
    let same = sums(&model.live.managed.sample) == sums(&sample);
    let findings = about_managed(&model.live);
    let began = model.live.managed.take(at, sample);
    let same = same && findings == about_managed(&model.live);
    model.live.times.clone_from(&model.inputs.times);
    let mut effects = match same {
        true => Vec::new(),
        false => derive(model, SourceId::Managed, look),
    };
    mark(model, at, began);
    if model.ui.view == View::Unified && !model.paused() {
        effects.push(Effect::DrawSoon);
    }
    effects
}

/// Marks the beginning of bursts of migrations on the timelines of the processes' devices.
fn mark(model: &mut Model, at: Nanos, began: Vec<(Target, u64)>) {
    for (target, bytes) in began {
        let rows = model
            .live
            .processes
            .iter()
            .filter(|p| p.pid == target.pid && p.state.alive());
        let ids: Vec<ProcessId> = rows.map(|p| p.id).collect();
        for process in ids {
            let device = model
                .live
                .devices
                .iter_mut()
                .find(|device| device.key == process.device);
            if let Some(device) = device {
                device.history.mark(Mark {
                    at,
                    kind: MarkKind::Migration,
                    process,
                    bytes,
                    number: 0,
                    text: "".into(),
                });
            }
        }
    }
}

/// Collects what processes publish of their managed memory.
pub(super) fn publish(managed: &mut ManagedWorld, at: Nanos, inputs: &Inputs) {
    let mut published: BTreeMap<Target, PublishedManaged> = BTreeMap::new();
    for channel in &inputs.channels.channels {
        let snapshot = &channel.snapshot;
        let Some(pid) = channel.pid.filter(|_| snapshot.life == Life::Alive) else {
            continue;
        };
        let simulated = snapshot
            .devices
            .first()
            .is_some_and(|map| map.device.kind == DeviceKind::Simulated);
        if let Some(its) = PublishedManaged::of(snapshot, simulated) {
            let start_time = snapshot.identity.start_time;
            published.entry(Target { pid, start_time }).or_default().add(its);
        }
    }
    managed.publish(at, published);
}

/// Notes each process's managed memory in its first row: which device it is on is not known.
pub(super) fn join(processes: &mut [Process], managed: &ManagedWorld) {
    let mut noted = HashSet::new();
    for process in processes.iter_mut().filter(|p| p.state.alive()) {
        if let Some((_, found)) = managed.of_pid(process.pid) {
            process.managed = match &found.sums {
                _ if !noted.insert(process.pid) => {
                    Reading::Failed("it is shown in the first row of the process".into())
                }
                Ok(sums) => Reading::Value(*sums),
                Err(why) => Reading::Failed(why.clone()),
            };
        }
    }
}

/// Splits what others use on each device. What NVML counts but attributes to no listed process is an upper bound of managed memory, if
/// there is any.
pub(super) fn divide(devices: &mut [Device], inputs: &Inputs, managed: &ManagedWorld) {
    for Told {
        key,
        memory,
        processes,
        exclusive,
    } in told(inputs)
    {
        let (Reading::Value(memory), Reading::Value(list), true) = (memory, processes, exclusive) else {
            continue;
        };
        let known = list
            .iter()
            .try_fold(0u64, |sum, process| Some(sum.saturating_add(*process.used.value()?)));
        let (Some(known), Some(used)) = (known, memory.used) else {
            continue;
        };
        let not_on_cpu = list
            .iter()
            .filter_map(|process| managed.of_pid(process.pid)?.1.sums.as_ref().ok())
            .fold(0u64, |sum, sums| sum.saturating_add(sums.not_on_cpu()));
        let bound = used.saturating_sub(known).min(not_on_cpu);
        if let Some(device) = devices.iter_mut().find(|device| device.key == key)
            && let Reading::Value(parts) = &mut device.memory
        {
            parts.set_managed(bound);
        }
    }
}
