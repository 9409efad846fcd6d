//! A made-up machine that looks like a real one: an H100 with a fragmented server, a training run and a process
//! that does not publish; and a simulated device.

mod broken;
mod simulated;

use std::sync::Arc;

use gpumem_channel::{Block, BlockState, PoolId, Segment, SegmentKind, SegmentMap, StringId};
use gpumem_probe::Reading;

use crate::model::*;
pub(super) use broken::{failing, mig, several};
pub(in crate::view) use simulated::simulated;

pub(super) const M: u64 = 1 << 20;
pub(super) const G: u64 = 1 << 30;
const NOW: Nanos = 5_000 * SECOND;
const H100: DeviceKey = DeviceKey::Uuid([7; 16]);

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn id(device: DeviceKey, n: u64) -> ProcessId {
    ProcessId {
        device,
        owner: Owner::Channel(ChannelKey(1, n)),
    }
}

fn process(id: ProcessId, pid: u32, label: &str, user: &str, command: &str) -> Process {
    Process {
        id,
        pid,
        device_label: label.into(),
        user: user.into(),
        command: command.into(),
        job: String::new(),
        rank: None,
        nvml: Reading::Pending,
        figures: None,
        managed: Reading::NotSupported,
        state: ProcessState::Publishing,
        simulated: false,
        sampled_at: NOW,
    }
}

fn partition(allocated: u64, cached: u64, other: u64) -> Partition {
    let (total, driver) = (81_559 * M, 480 * M);
    let free = total - driver - allocated - cached - other;
    Partition {
        total,
        allocated,
        cached,
        other,
        driver,
        free,
        basis: Basis::Driver,
        skewed: false,
    }
}

/// A minute of a training loop's sawtooth on top of a server's steady use.
fn history(make: impl Fn(u64, u64) -> Partition, phases: ProcessId) -> History {
    let mut history = History::default();
    for i in 0..600u64 {
        let at = NOW - (599 - i) * SECOND / 5;
        let phase = i % 40;
        let tooth = match phase {
            0..18 => phase * 480 * M,
            18..34 => (34 - phase) * 540 * M,
            _ => 600 * M,
        };
        let peak = if i < 160 { 6 } else { 9 } * G;
        history.push(Point {
            at,
            memory: make(tooth.min(peak), peak),
        });
        let name = match phase {
            0 => "forward",
            18 => "backward",
            34 => "optimizer",
            _ => continue,
        };
        history.mark(Mark {
            at,
            kind: MarkKind::Phase,
            process: phases,
            bytes: 0,
            text: name.into(),
        });
    }
    for (back, kind, bytes) in [
        (93, MarkKind::SegmentTaken, 3 * G),
        (44, MarkKind::OutOfMemory, 20 * G),
        (43, MarkKind::CacheReleased, 2 * G),
        (42, MarkKind::Retry, 20 * G),
        (20, MarkKind::Remapped, G),
        (12, MarkKind::SegmentFreed, 512 * M),
        (8, MarkKind::SegmentTaken, 512 * M),
    ] {
        history.mark(Mark {
            at: NOW - back * SECOND,
            kind,
            process: phases,
            bytes,
            text: "".into(),
        });
    }
    history
}

fn figures(map: &BlockMap) -> Figures {
    let mut f = Figures {
        segments: map.segments.len() as u64,
        complete: true,
        retries: 3,
        ..Figures::default()
    };
    for block in map.segments.iter().flat_map(|s| s.blocks.iter()) {
        match block.state {
            BlockState::Allocated | BlockState::PendingFree => {
                f.allocated += block.size;
                f.requested += block.requested;
                f.active_blocks += 1;
            }
            BlockState::Free => {
                f.free += block.size;
                f.largest_free = f.largest_free.max(block.size);
                f.free_blocks += 1;
                f.free_sizes.add(block.size);
            }
            _ => {}
        }
    }
    f.cached = f.free;
    f.reserved = f.allocated + f.free;
    (f.peak_allocated, f.peak_reserved) = (f.allocated + 2 * G, f.reserved);
    f.inactive_split = f.free / 2;
    f
}

/// A server whose segments are full of holes.
fn block_map(process: ProcessId, segments: &[(u64, SegmentKind)]) -> BlockMap {
    let mut dice = Dice(42);
    let mut addr = 0x7f2a_4000_0000;
    let (mut maps, mut bytes, mut count) = (vec![], 0, 0);
    for (slot, &(size, kind)) in segments.iter().enumerate() {
        let mut blocks: Vec<Block> = vec![];
        let mut at = 0;
        while at < size {
            let want = match dice.roll(6) {
                0 => 2 * M + dice.roll(30) * M,
                1 | 2 => (1 + dice.roll(12)) * 16 * M,
                3 => (1 + dice.roll(4)) * 128 * M,
                4 => 512 * 1024 * (1 + dice.roll(5)),
                _ => 64 * M,
            };
            let mut size = want.min(size - at);
            let state = match dice.roll(20) {
                0..11 => BlockState::Allocated,
                11 if kind == SegmentKind::Virtual => BlockState::Unmapped,
                12 => BlockState::PendingFree,
                _ => BlockState::Free,
            };
            if state == BlockState::Free {
                size = size.min(512 * M);
            }
            let held = matches!(state, BlockState::Allocated | BlockState::PendingFree);
            blocks.push(Block {
                addr: addr + at,
                size,
                requested: if held { size - size / 50 } else { 0 },
                stream: 0,
                state,
                device: 0,
                pool: PoolId::LARGE,
                segment: slot as u32,
                tag: StringId(if held { 1 + dice.roll(3) as u32 } else { 0 }),
                time: NOW - dice.roll(4_000) * SECOND,
            });
            at += size;
        }
        count += blocks.len();
        bytes += size;
        let segment = Segment {
            addr,
            size,
            mapped: size,
            kind,
            pool: PoolId::LARGE,
            chunk: 2 * M,
            ..Segment::default()
        };
        maps.push(Arc::new(SegmentMap {
            slot: slot as u32,
            segment,
            blocks: blocks.into(),
            complete: true,
        }));
        addr += size + 64 * M;
    }
    let strings: Vec<Arc<str>> = ["", "kv-cache", "activations", "weights"]
        .iter()
        .map(|&s| s.into())
        .collect();
    BlockMap {
        process,
        segments: maps,
        strings: strings.into(),
        bytes,
        blocks: count,
        untracked: (0, 0),
        read_at: NOW,
    }
}

/// One H100, a fragmented server, a training run, a process that does not publish.
pub(super) fn h100() -> Model {
    let server = id(H100, 1);
    let training = id(H100, 2);
    let map = block_map(
        server,
        &[
            (12 * G, SegmentKind::Plain),
            (10 * G, SegmentKind::Plain),
            (8 * G, SegmentKind::Virtual),
            (6 * G, SegmentKind::Plain),
            (3 * G, SegmentKind::Plain),
            (G, SegmentKind::Plain),
            (512 * M, SegmentKind::Plain),
            (256 * M, SegmentKind::Plain),
            (20 * M, SegmentKind::Plain),
            (2 * M, SegmentKind::Plain),
        ],
    );
    let mut serve = process(
        server,
        4121,
        "GPU 0",
        "ml",
        "python serve.py --model llama-70b --port 8080",
    );
    serve.figures = Some(figures(&map));
    serve.nvml = Reading::Value(41 * G + 518 * M);
    serve.job = "serve".into();
    let mut train = process(training, 5570, "GPU 0", "ana", "python train.py --config base.yaml");
    train.figures = Some(Figures {
        reserved: 9 * G,
        allocated: 5 * G + 300 * M,
        requested: 5 * G + 211 * M,
        cached: 4 * G - 300 * M,
        peak_allocated: 9 * G - 40 * M,
        peak_reserved: 9 * G,
        free: 4 * G - 300 * M,
        largest_free: 3 * G,
        free_blocks: 12,
        active_blocks: 480,
        segments: 14,
        ooms: 1,
        complete: true,
        ..Figures::default()
    });
    train.nvml = Reading::Value(9 * G + 520 * M);
    let mut quiet = process(
        ProcessId {
            device: H100,
            owner: Owner::Pid(6011, 99),
        },
        6011,
        "GPU 0",
        "kim",
        "/usr/bin/python3 notebook_kernel.py -f /run/user/1000/jupyter/kernel-3f.json",
    );
    quiet.nvml = Reading::Value(2 * G + 100 * M);
    quiet.state = ProcessState::NotPublishing;
    let mut dead = process(id(H100, 9), 3977, "GPU 0", "ana", "python train.py --config large.yaml");
    dead.figures = Some(Figures {
        reserved: 70 * G,
        allocated: 66 * G,
        cached: 4 * G,
        ooms: 1,
        ..Figures::default()
    });
    dead.state = ProcessState::Died;
    dead.nvml = Reading::Failed("the process is gone".into());

    let served = serve.figures.clone().unwrap_or_default();
    let make =
        |tooth: u64, peak: u64| partition(served.allocated + tooth, served.cached + peak - tooth, 3 * G + 74 * M);
    let device = Device {
        key: H100,
        kind: DeviceKind::Nvml,
        label: "GPU 0".into(),
        name: "NVIDIA H100 80GB HBM3".into(),
        uuid: Some([7; 16]),
        pci: "00000000:4E:00.0".into(),
        state: DeviceState::Present,
        memory: Reading::Value(make(5 * G + 300 * M, 9 * G)),
        shared_with_host: false,
        sensors: Sensors {
            utilization: Reading::Value(97),
            memory_utilization: Reading::Value(61),
            temperature: Reading::Value(58),
            power: Reading::Value(512_300),
            power_limit: Reading::Value(700_000),
            pcie_rx: Reading::Value(12_000_000),
            pcie_tx: Reading::Value(1_234_000_000),
        },
        mig: vec![],
        publishers: 2,
        history: history(make, training),
    };
    let findings = vec![
        Finding {
            severity: Severity::Warning,
            process: Some(server),
            text: "4121: 18.0 GiB cached, largest free block 512.0 MiB: the next larger request takes new memory"
                .into(),
        },
        Finding {
            severity: Severity::Info,
            process: Some(training),
            text: "5570: a request of 20.0 GiB failed 44 s ago and succeeded after 2.0 GiB of cache were released"
                .into(),
        },
    ];
    let source = Source {
        state: SourceState::Ok,
        sampled_at: Some(NOW),
    };
    Model {
        setup: Setup {
            host: "train-07".into(),
            interval: SECOND,
            ..Setup::default()
        },
        now: NOW,
        live: World {
            nvml: source.clone(),
            channels: source,
            driver: Driver {
                version: Some("580.159.04".into()),
                cuda: Some((13, 0)),
            },
            devices: vec![device],
            processes: vec![serve, train, quiet, dead],
            findings,
            ..World::default()
        },
        rows: vec![0, 1, 2, 3],
        map: Some(map),
        ui: Ui {
            process: Some(server),
            ..Ui::default()
        },
        ..Model::default()
    }
}

/// Every screen, by name.
pub(super) fn screens() -> Vec<(&'static str, Model)> {
    let at = |view, mut model: Model| {
        model.ui.view = view;
        model
    };
    let with = |popup, mut model: Model| {
        model.ui.popup = Some(popup);
        model
    };
    let list = {
        let mut model = at(View::Demo, simulated());
        model.demo = None;
        model
    };
    vec![
        ("overview", h100()),
        ("overview-sim", simulated()),
        ("overview-failing", failing()),
        ("overview-several", several()),
        ("overview-mig", mig()),
        ("blocks", at(View::Blocks, h100())),
        ("blocks-sim", at(View::Blocks, simulated())),
        ("blocks-none", at(View::Blocks, failing())),
        ("timeline", at(View::Timeline, h100())),
        ("timeline-sim", at(View::Timeline, simulated())),
        ("demo", at(View::Demo, simulated())),
        ("demo-list", list),
        ("help", with(Popup::Help { scroll: 0 }, h100())),
        ("sort", with(Popup::Sort { selected: 3 }, h100())),
        ("fix", with(Popup::Fix { selected: 1 }, at(View::Demo, simulated()))),
    ]
}
