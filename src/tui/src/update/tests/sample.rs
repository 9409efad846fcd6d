//! Samples of small machines to test with.

use std::sync::Arc;

use gpumem_channel::{
    Block, BlockState, Device, DeviceKind, DeviceMap, DeviceStats, Identity, Life, Segment, SegmentMap, Snapshot, Stat,
};
use gpumem_probe::{Gpu, GpuProcess, Memory, NvmlSample, NvmlState, Process, ProcessKind, Reading};

use crate::event::{Effect, Event, Key};
use crate::model::{Channel, ChannelKey, ChannelSample, DemoInfo, Figures, Model, Nanos, SECOND, Sample, Setup};
use crate::update::update;

pub(super) const GIB: u64 = 1 << 30;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const CARD: [u8; 16] = [7; 16];

pub(super) fn model() -> Model {
    let demo = |name: &str| DemoInfo {
        name: name.into(),
        ..DemoInfo::default()
    };
    Model {
        setup: Setup {
            user: "ml".into(),
            uid: 1000,
            interval: SECOND,
            demos: vec![demo("fragmentation"), demo("train")],
            without_gpu: "train".into(),
            ..Setup::default()
        },
        ..Model::default()
    }
}

/// A channel of `pid` on the card, with segments of these blocks (size, state).
pub(super) fn channel(pid: u32, segments: &[&[(u64, BlockState)]]) -> Channel {
    channel_on(pid, segments, DeviceKind::Cuda, Life::Alive)
}

pub(super) fn channel_on(pid: u32, segments: &[&[(u64, BlockState)]], kind: DeviceKind, life: Life) -> Channel {
    let mut stats = DeviceStats::default();
    let mut maps = Vec::new();
    for (slot, blocks) in segments.iter().enumerate() {
        let base = 0x7000_0000_0000 + slot as u64 * 64 * GIB;
        let mut addr = base;
        let blocks: Vec<Block> = blocks
            .iter()
            .map(|&(size, state)| {
                let block = Block {
                    addr,
                    size,
                    requested: size,
                    state,
                    segment: slot as u32,
                    ..Block::default()
                };
                addr += size;
                block
            })
            .collect();
        let segment = Segment {
            addr: base,
            size: addr - base,
            mapped: addr - base,
            ..Segment::default()
        };
        maps.push(Arc::new(SegmentMap::new(slot as u32, segment, blocks.into(), true)));
    }
    let sum = |wanted: fn(BlockState) -> bool| -> u64 {
        maps.iter()
            .flat_map(|m| m.blocks.iter())
            .filter(|b| wanted(b.state))
            .map(|b| b.size)
            .sum()
    };
    let stat = |n: u64| Stat {
        current: n,
        peak: n,
        allocated: n,
    };
    stats.large.allocated_bytes = stat(sum(|s| s == BlockState::Allocated));
    stats.large.requested_bytes = stats.large.allocated_bytes;
    stats.large.active_bytes = stat(sum(|s| matches!(s, BlockState::Allocated | BlockState::PendingFree)));
    stats.large.reserved_bytes = stat(sum(|s| s != BlockState::Unmapped));
    stats.large.segment = stat(segments.len() as u64);
    let device = Device {
        uuid: CARD,
        kind,
        total: 80 * GIB,
        name: "H100".into(),
        ..Device::default()
    };
    let map = DeviceMap {
        device,
        stats: Some(stats),
        contradiction: None,
        segments: maps,
        outside: None,
    };
    let key = ChannelKey(1, u64::from(pid));
    let figures = [Figures::of(&map, &[], None)];
    let identity = Identity {
        pid,
        uid: 1000,
        program: format!("python job{pid}"),
        ..Identity::default()
    };
    let snapshot = Snapshot {
        identity: Arc::new(identity),
        life,
        devices: vec![map],
        ..Snapshot::default()
    };
    Channel {
        key,
        pid: Some(pid),
        disputed: None,
        snapshot: Arc::new(snapshot),
        figures: figures.into(),
        error: None,
        read_at: SECOND,
        last_sign: None,
    }
}

pub(super) fn channels(at: Nanos, mut channels: Vec<Channel>) -> Event {
    channels.iter_mut().for_each(|c| c.read_at = at);
    channel_sample(
        at,
        ChannelSample {
            channels,
            ..ChannelSample::default()
        },
    )
}

pub(super) fn channel_sample(at: Nanos, sample: ChannelSample) -> Event {
    Event::sampled(at, Sample::Channels(sample))
}

/// A sample of processes with these pids, users and start times.
pub(super) fn processes(at: Nanos, list: &[(u32, &str, u64)]) -> Event {
    Event::sampled(at, Sample::Processes(people(list)))
}

pub(super) fn people(list: &[(u32, &str, u64)]) -> Vec<Process> {
    let person = |&(pid, user, start_time): &(u32, &str, u64)| Process {
        pid,
        user: user.into(),
        command: format!("command {pid}"),
        label: format!("label {pid}"),
        start_time,
        parent: None,
        rss: 0,
        stopped: false,
        hints: [].into(),
    };
    list.iter().map(person).collect()
}

/// A sample of NVML with one card of 80 GiB, of which the driver holds half a GiB.
pub(super) fn nvml(at: Nanos, used: u64, processes: &[(u32, u64)]) -> Event {
    nvml_but(at, used, processes, |_| ())
}

/// Does the same, and then changes the card.
pub(super) fn nvml_but(at: Nanos, used: u64, processes: &[(u32, u64)], change: impl FnOnce(&mut Gpu)) -> Event {
    let memory = Memory {
        total: 80 * GIB,
        used: Some(used),
        reserved: Some(512 * MIB),
        free: Some(80 * GIB - 512 * MIB - used),
        ..Memory::default()
    };
    let process = |&(pid, used): &(u32, u64)| GpuProcess {
        pid,
        kind: ProcessKind::Compute,
        used: Reading::Value(used),
        mig: None,
        mps: false,
    };
    let mut gpu = Gpu {
        uuid: Some(CARD),
        name: "H100".into(),
        memory: Reading::Value(memory),
        processes: Reading::Value(processes.iter().map(process).collect()),
        ..Gpu::default()
    };
    change(&mut gpu);
    let sample = NvmlSample {
        state: NvmlState::Ready,
        gpus: vec![gpu],
        ..NvmlSample::default()
    };
    Event::sampled(at, Sample::Nvml(sample))
}

pub(super) fn nvml_state(at: Nanos, state: NvmlState) -> Event {
    let sample = NvmlSample {
        state,
        ..NvmlSample::default()
    };
    Event::sampled(at, Sample::Nvml(sample))
}

/// Applies events in order, a millisecond apart. Returns the effects of the last.
pub(super) fn feed(model: &mut Model, events: impl IntoIterator<Item = Event>) -> Vec<Effect> {
    let mut effects = Vec::new();
    for event in events {
        effects = update(model, model.now + 1_000_000, event);
    }
    effects
}

pub(super) fn press(model: &mut Model, keys: &[Key]) -> Vec<Effect> {
    feed(model, keys.iter().map(|&key| Event::Key(key)))
}

pub(super) fn type_text(model: &mut Model, text: &str) -> Vec<Effect> {
    feed(model, text.chars().map(|c| Event::Key(Key::Char(c))))
}

/// A model with three publishers of 4, 2 and 1 GiB and one process that does not publish.
pub(super) fn busy() -> Model {
    use BlockState::{Allocated, Free};
    let mut model = model();
    let list = vec![
        channel(11, &[&[(GIB, Allocated), (GIB, Free), (2 * GIB, Allocated)]]),
        channel(12, &[&[(2 * GIB, Allocated)]]),
        channel(13, &[&[(GIB / 2, Allocated)], &[(GIB / 2, Free)]]),
    ];
    feed(
        &mut model,
        [
            channels(SECOND, list),
            nvml(
                SECOND,
                12 * GIB,
                &[(11, 5 * GIB), (12, 3 * GIB), (13, 2 * GIB), (99, 2 * GIB)],
            ),
        ],
    );
    model
}

pub(super) fn pids(model: &Model) -> Vec<u32> {
    model.listed().map(|p| p.pid).collect()
}
