//! The memory hierarchy of cards, as `gpumem-tui bench hierarchy` measured it.

use std::sync::Arc;

use super::{Device, DeviceKind, DeviceState, Model, Nanos};

/// The levels of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rung {
    /// Registers of an SM.
    Registers,
    /// Shared memory of an SM.
    Shared,
    /// L1 cache of an SM.
    L1,
    /// The part of the L2 cache that is near to an SM.
    L2Near,
    /// The other part of the L2 cache.
    L2Far,
    /// The device's memory.
    Device,
    /// The memory of another GPU.
    Peer,
    /// Pinned memory of the host.
    PinnedHost,
    /// Pageable memory of the host.
    PageableHost,
    /// A disk.
    Disk,
}

/// A measured latency.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LevelLatency {
    /// Median in nanoseconds.
    pub ns: f64,
    /// Median in cycles of the SM's clock.
    pub cycles: f64,
    /// The smallest and the largest sample in nanoseconds.
    pub range: (f64, f64),
    /// How it was measured: instruction, working set, order.
    pub how: String,
}

/// A measured bandwidth.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LevelBandwidth {
    /// What moved the data: `read`, `copy`, `to device`.
    pub what: String,
    /// 10^9 bytes a second.
    pub gb_per_s: f64,
}

/// A level with its figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HierarchyLevel {
    /// Which one.
    pub rung: Rung,
    /// Its name.
    pub name: String,
    /// Bytes of one SM's part, if it is divided among SMs.
    pub bytes_per_sm: Option<u64>,
    /// Bytes in all.
    pub bytes: Option<u64>,
    /// Its latency, if it was measured.
    pub latency: Option<LevelLatency>,
    /// Latencies that other methods give.
    pub other_latencies: Vec<LevelLatency>,
    /// Its bandwidths.
    pub bandwidths: Vec<LevelBandwidth>,
    /// What is to know about it; empty if nothing.
    pub note: String,
    /// Published figures, one a line.
    pub published: Vec<String>,
    /// A latency in nanoseconds that others published, for a level that was not measured.
    pub reference_ns: Option<f64>,
}

impl HierarchyLevel {
    /// Returns the bandwidth to show of several: the highest of what reads or copies.
    pub(crate) fn bandwidth(&self) -> Option<f64> {
        let all = self.bandwidths.iter().map(|bandwidth| bandwidth.gb_per_s);
        all.fold(None, |most: Option<f64>, one| {
            Some(most.map_or(one, |most| most.max(one)))
        })
    }

    /// Returns the latency in nanoseconds, measured or else published.
    pub(crate) fn ns(&self) -> Option<f64> {
        let measured = self.latency.as_ref().map(|latency| latency.ns);
        measured.or(self.reference_ns)
    }
}

/// A point of the curve of latency over the size of the working set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CurvePoint {
    /// Working set in bytes.
    pub bytes: u64,
    /// Nanoseconds of a load.
    pub ns: f64,
    /// The level that serves a working set of this size; `None` between two.
    pub rung: Option<Rung>,
}

/// The hierarchy of a card.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hierarchy {
    /// The card's name.
    pub card: String,
    /// Its UUID as NVML writes it.
    pub uuid: String,
    /// Version of the driver that it was measured with.
    pub driver: String,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Clock of the SM meanwhile in MHz.
    pub sm_mhz: f64,
    /// When it was measured, in seconds since 1970.
    pub date: u64,
    /// How long that took, in milliseconds.
    pub duration_ms: u64,
    /// Device memory that it used at most, in bytes.
    pub budget: u64,
    /// L2 cache that is set aside for persisting accesses, and the most that can be, in bytes.
    pub persisting: Option<(u64, u64)>,
    /// The levels, from the fastest to the slowest.
    pub levels: Vec<HierarchyLevel>,
    /// Latency by the size of the working set.
    pub curve: Vec<CurvePoint>,
    /// Latency of near L2 by SM in nanoseconds: the smallest, the median, the largest.
    pub spread: Option<(f64, f64, f64)>,
}

/// A measurement that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measuring {
    /// UUID of the device that is measured.
    pub uuid: String,
    /// Process id of the child, once it was started.
    pub pid: Option<u32>,
    /// Finished parts, and all of them.
    pub done: (u64, u64),
    /// What is measured now.
    pub what: String,
    /// An estimate of the time left.
    pub left: Nanos,
}

/// What is known of the hierarchies of cards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hierarchies {
    /// What was measured on this machine, the newest first.
    pub kept: Vec<Arc<Hierarchy>>,
    /// The figures of a real card, shown where nothing was measured.
    pub example: Option<Arc<Hierarchy>>,
    /// The measurement that runs.
    pub measuring: Option<Measuring>,
    /// Why the last one failed.
    pub failed: Option<String>,
}

impl Hierarchies {
    /// Adds a new measurement, which replaces an older one of the same card and driver.
    pub(crate) fn keep(&mut self, new: Hierarchy) {
        self.kept
            .retain(|old| (&old.uuid, &old.driver) != (&new.uuid, &new.driver));
        self.kept.insert(0, Arc::new(new));
    }
}

/// Whose figures are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Of the selected card, with the driver that is loaded.
    Card,
    /// Of the selected card, with another driver.
    OtherDriver,
    /// Of another card, as an example.
    Example,
}

/// The memory that the hierarchy was measured with takes besides its budget: a CUDA context, in bytes.
pub(crate) const CONTEXT: u64 = 600 << 20;
/// Device memory that a measurement uses, in bytes, unless less is free.
pub(crate) const MEASURED_WITH: u64 = 1 << 30;
/// Seconds that a measurement takes (8.7 on an H200).
pub(crate) const MEASURED_IN: u64 = 10;

impl Model {
    /// Returns the selected device if it can be measured: a GPU of this machine that is there.
    pub(crate) fn measurable(&self) -> Option<&Device> {
        let device = self.selected_device()?;
        let is_there = device.kind == DeviceKind::Nvml && device.state == DeviceState::Present;
        (is_there && device.uuid_text().is_some()).then_some(device)
    }

    /// Returns the hierarchy to show, and whose it is.
    pub(crate) fn hierarchy(&self) -> Option<(&Hierarchy, Whose)> {
        let uuid = self.measurable().and_then(Device::uuid_text);
        let its = uuid.as_ref().and_then(|uuid| {
            let driver = self.world().driver.version.as_deref();
            let mut of_card = self.hierarchies.kept.iter().filter(move |kept| kept.uuid == *uuid);
            let same = of_card.clone().find(|kept| Some(kept.driver.as_str()) == driver);
            let same = same.map(|kept| (&**kept, Whose::Card));
            same.or_else(|| of_card.next().map(|kept| (&**kept, Whose::OtherDriver)))
        });
        let example = self.hierarchies.example.as_deref();
        its.or_else(|| example.map(|example| (example, Whose::Example)))
    }

    /// Returns how many programs use the selected device, besides children of the dashboard.
    pub(crate) fn users_of_selected(&self) -> usize {
        self.measurable().map_or(0, |device| self.users_of(device))
    }

    fn users_of(&self, device: &Device) -> usize {
        let own = self.demo.as_ref().and_then(|demo| demo.pid);
        let its = self.world().processes.iter().filter(|p| p.id.device == device.key);
        its.filter(|p| p.state.alive() && Some(p.pid) != own).count()
    }

    /// Returns the UUIDs of the devices that a measurement sees, separated by commas: the selected one, and as its peers those that
    /// no program uses.
    pub(crate) fn measured_devices(&self) -> Option<String> {
        let selected = self.measurable()?;
        let idle = |device: &&Device| {
            let is_there = device.kind == DeviceKind::Nvml && device.state == DeviceState::Present;
            is_there && device.part_of.is_none() && device.key != selected.key && self.users_of(device) == 0
        };
        let peers = self
            .world()
            .devices
            .iter()
            .filter(idle)
            .filter(|_| selected.part_of.is_none());
        let all: Option<Vec<String>> = std::iter::once(selected).chain(peers).map(Device::uuid_text).collect();
        Some(all?.join(","))
    }
}
