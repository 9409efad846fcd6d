//! The devices of the newest samples: NVML's GPUs and MIG devices, and those known only from channels.

use std::collections::{HashMap, HashSet};

use gpumem_channel::{DeviceKind as PublishedKind, Life};
use gpumem_probe::{Gpu, GpuProcess, Memory, MigDevice, Reading};

use crate::model::{Channel, Device, DeviceKey, DeviceKind, DeviceState, Inputs, PartOf, Partition, Sensors};

/// Returns every device: NVML's, then those known only from channels, then simulated ones. Devices that are gone come after the
/// others of their kind.
pub(super) fn devices(inputs: &Inputs, before: &mut [Device]) -> Vec<Device> {
    let published = &Published::of(&inputs.channels.channels);
    let with_parts = |gpu| std::iter::once(of_gpu(gpu, published)).chain(parts_of(gpu, published));
    let mut devices: Vec<Device> = inputs.nvml.gpus.iter().flat_map(with_parts).collect();
    let listed = devices.len();
    let mut known: HashSet<DeviceKey> = devices.iter().map(|d| d.key).collect();
    let mut before: HashMap<DeviceKey, &mut Device> = before.iter_mut().map(|d| (d.key, d)).collect();
    for channel in &inputs.channels.channels {
        for (index, map) in channel.snapshot.devices.iter().enumerate() {
            let key = DeviceKey::of(channel.key, index, &map.device);
            // The device of a dead publisher is shown only if it was shown before.
            let shown = channel.snapshot.life == Life::Alive || before.contains_key(&key);
            if shown && known.insert(key) {
                devices.push(of_channel(key, channel, index, published));
            }
        }
    }
    devices[listed..].sort_by_key(|d| (d.kind == DeviceKind::Simulated, d.state == DeviceState::Gone, d.key));
    for device in &mut devices {
        if let Some(old) = before.remove(&device.key) {
            device.history = std::mem::take(&mut old.history);
            if device.memory.value().is_none() && old.memory.value().is_some() && device.state != DeviceState::Present {
                device.memory = old.memory.clone();
            }
        }
    }
    devices
}

/// Returns the identity of a GPU that NVML lists.
fn gpu_key(gpu: &Gpu) -> DeviceKey {
    gpu.uuid.map_or(DeviceKey::NvmlIndex(gpu.index), DeviceKey::Uuid)
}

/// Returns the identity of a MIG device.
fn part_key(gpu: &Gpu, part: &MigDevice) -> DeviceKey {
    part.uuid_bytes()
        .map_or(DeviceKey::Part(gpu.index, part.index), DeviceKey::Uuid)
}

/// NVML's figures of a GPU or a MIG device.
#[derive(Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) key: DeviceKey,
    pub(super) memory: &'a Reading<Memory>,
    pub(super) processes: &'a Reading<Vec<GpuProcess>>,
    /// Whether all its used memory belongs to its own processes: it has no MIG devices and does not use the host's memory.
    pub(super) exclusive: bool,
}

/// Iterates over every device that NVML lists.
pub(super) fn told(inputs: &Inputs) -> impl Iterator<Item = Told<'_>> {
    inputs.nvml.gpus.iter().flat_map(|gpu| {
        let whole = Told {
            key: gpu_key(gpu),
            memory: &gpu.memory,
            processes: &gpu.processes,
            exclusive: gpu.mig.is_empty() && gpu.host.is_none(),
        };
        let parts = gpu.mig.iter().map(|part| Told {
            key: part_key(gpu, part),
            memory: &part.memory,
            processes: &part.processes,
            exclusive: true,
        });
        std::iter::once(whole).chain(parts)
    })
}

/// Splits a device's memory, as NVML reports it, by the figures of its publishers.
fn partition(memory: &Reading<Memory>, of: fn(&Memory, u64, u64) -> Partition, sums: Sums) -> Reading<Partition> {
    match memory {
        Reading::Value(memory) => Reading::Value(of(memory, sums.allocated, sums.reserved)),
        Reading::Pending => Reading::Pending,
        Reading::NotSupported => sums.partition().map_or(Reading::NotSupported, Reading::Value),
        Reading::NoPermission => Reading::NoPermission,
        Reading::Failed(text) => Reading::Failed(text.clone()),
    }
}

/// Returns the MIG devices of a GPU.
fn parts_of(gpu: &Gpu, published: &Published) -> impl Iterator<Item = Device> {
    gpu.mig.iter().map(|part| {
        let key = part_key(gpu, part);
        let sums = published.on(key);
        Device {
            key,
            kind: DeviceKind::Nvml,
            label: format!("GPU {}:{}", gpu.index, part.index),
            name: format!("MIG {}", part.name).trim_end().to_owned(),
            uuid: part.uuid_bytes(),
            pci: gpu.pci.clone(),
            state: DeviceState::from(&gpu.state),
            memory: partition(&part.memory, Partition::of_driver, sums),
            shared_with_host: false,
            // NVML measures only whole GPUs.
            sensors: Sensors::not_supported(),
            host: None,
            part_of: Some(PartOf {
                gpu: gpu_key(gpu),
                index: part.index,
                profile: part.name.clone(),
                uuid: part.uuid.clone(),
            }),
            publishers: sums.publishers,
            history: Default::default(),
        }
    })
}

fn of_gpu(gpu: &Gpu, published: &Published) -> Device {
    let key = gpu_key(gpu);
    let parts = gpu.mig.iter().map(|part| published.on(part_key(gpu, part)));
    let sums = parts.fold(published.on(key), Sums::with);
    let of = match gpu.host {
        Some(_) => Partition::of_host,
        None => Partition::of_driver,
    };
    Device {
        key,
        kind: DeviceKind::Nvml,
        label: format!("GPU {}", gpu.index),
        name: gpu.name.clone(),
        uuid: gpu.uuid,
        pci: gpu.pci.clone(),
        state: DeviceState::from(&gpu.state),
        memory: partition(&gpu.memory, of, sums),
        shared_with_host: gpu.host.is_some(),
        sensors: gpu.sensors.clone(),
        host: gpu.host,
        part_of: None,
        publishers: sums.publishers,
        history: Default::default(),
    }
}

fn of_channel(key: DeviceKey, channel: &Channel, index: usize, sums: &Published) -> Device {
    let published = &channel.snapshot.devices[index].device;
    let simulated = published.kind == PublishedKind::Simulated;
    let mut sums = sums.on(key);
    let publishers = sums.publishers;
    let alive = publishers > 0;
    // A simulated device belongs to its publisher alone, and the black box is newer than the last sample.
    if simulated && !alive {
        sums = Sums::default();
        sums.add(channel, index);
    }
    Device {
        key,
        kind: if simulated {
            DeviceKind::Simulated
        } else {
            DeviceKind::Published
        },
        label: if simulated {
            format!("SIM {}", channel.pid.unwrap_or(channel.snapshot.identity.pid))
        } else {
            format!("CUDA {}", published.ordinal)
        },
        name: published.name.clone(),
        uuid: (!simulated).then_some(published.uuid),
        pci: String::new(),
        state: if alive { DeviceState::Present } else { DeviceState::Gone },
        memory: match sums.partition() {
            Some(parts) => Reading::Value(parts),
            None if alive && sums.readable > 0 => Reading::Failed("its publisher does not report its size".into()),
            None if alive => Reading::Failed("its figures cannot be read consistently".into()),
            None => Reading::Failed("its publisher is gone".into()),
        },
        shared_with_host: false,
        sensors: Sensors::default(),
        host: None,
        part_of: None,
        publishers,
        history: Default::default(),
    }
}

/// Sums over the live publishers, by device. Computed once, since there may be thousands of devices.
struct Published(HashMap<DeviceKey, Sums>);

impl Published {
    fn of(channels: &[Channel]) -> Published {
        let mut sums: HashMap<DeviceKey, Sums> = HashMap::new();
        for channel in channels.iter().filter(|c| c.snapshot.life == Life::Alive) {
            for (index, map) in channel.snapshot.devices.iter().enumerate() {
                let key = DeviceKey::of(channel.key, index, &map.device);
                sums.entry(key).or_default().add(channel, index);
            }
        }
        Published(sums)
    }

    fn on(&self, key: DeviceKey) -> Sums {
        self.0.get(&key).copied().unwrap_or_default()
    }
}

/// Sums over publishers on one device.
#[derive(Clone, Copy, Default)]
struct Sums {
    publishers: usize,
    readable: usize,
    total: u64,
    allocated: u64,
    reserved: u64,
}

impl Sums {
    /// Adds a channel's figures of its device number `index`. Figures that contradict themselves count as unreadable.
    fn add(&mut self, channel: &Channel, index: usize) {
        let map = &channel.snapshot.devices[index];
        self.publishers += 1;
        self.total = self.total.max(map.device.total);
        if let Some(stats) = map.stats.as_ref().filter(|_| map.contradiction.is_none()) {
            let all = stats.all();
            self.readable += 1;
            self.allocated = self.allocated.saturating_add(all.allocated_bytes.current);
            self.reserved = self.reserved.saturating_add(all.reserved_bytes.current);
        }
    }

    /// Adds two sums. A program on two MIG devices of a GPU counts as two publishers on it.
    fn with(self, other: Sums) -> Sums {
        Sums {
            publishers: self.publishers + other.publishers,
            readable: self.readable + other.readable,
            total: self.total.max(other.total),
            allocated: self.allocated.saturating_add(other.allocated),
            reserved: self.reserved.saturating_add(other.reserved),
        }
    }

    fn partition(&self) -> Option<Partition> {
        (self.readable > 0 && self.total > 0)
            .then(|| Partition::of_publishers(self.total, self.allocated, self.reserved))
    }
}
