//! Models of made-up machines: an H100 with a fragmented server, a training run and a process that does not publish; a
//! simulated device; and faulty or unusual machines.

mod broken;
mod hierarchy;
mod memory;
pub(super) mod ranks;
mod simulated;
mod unified;

use gpumem_channel::SegmentKind;
use gpumem_probe::{NvmlState, Reading};

use crate::model::*;
use memory::{block_map, figures, history, partition};

pub(in crate::view) use broken::{failing, several};
pub(super) use broken::{mig, shared};
pub(in crate::view) use simulated::{lesson, simulated};

pub(super) const M: u64 = 1 << 20;
pub(super) const G: u64 = 1 << 30;
const NOW: Nanos = 5_000 * SECOND;
const H100: DeviceKey = DeviceKey::Uuid([7; 16]);

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
        label: match command.strip_prefix("gpumem-tui ") {
            Some(words) => words.into(),
            // The script behind the interpreter.
            None => command.split(' ').nth(1).unwrap_or_default().into(),
        },
        job: String::new(),
        rank: None,
        world_size: None,
        parent: None,
        nvml: Reading::Pending,
        figures: None,
        managed: Reading::NotSupported,
        state: ProcessState::Publishing,
        stopped: None,
        mps: false,
        simulated: false,
        failing: None,
        ended: None,
        hints: [].into(),
    }
}

/// Returns a machine with one H100, a fragmented server, a training run and a process that does not publish.
pub(in crate::view) fn h100() -> Model {
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
        mapped: true,
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
        requested: 65 * G,
        cached: 4 * G,
        peak_allocated: 69 * G,
        peak_reserved: 70 * G,
        free: 4 * G,
        largest_free: G,
        complete: true,
        ooms: 1,
        mapped: true,
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
        host: None,
        part_of: None,
        publishers: 2,
        history: history(make, training),
    };
    let findings = vec![
        Finding {
            severity: Severity::Warning,
            process: Some(server),
            about: Default::default(),
            text: "4121: 17.1 GiB cached: requests over 512 MiB take new memory".into(),
        },
        Finding {
            severity: Severity::Info,
            process: Some(training),
            about: Default::default(),
            text: "5570: a request of 20.0 GiB failed 44 s ago and succeeded after 2.0 GiB of cache were released"
                .into(),
        },
    ];
    Model {
        setup: Setup {
            host: "train-07".into(),
            interval: SECOND,
            ..Setup::default()
        },
        now: NOW,
        live: World {
            nvml: NvmlState::Ready,
            times: Times::at(NOW, &[SourceId::Nvml, SourceId::Channels, SourceId::Managed]),
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

/// Returns the model of every screen, by name.
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
        ("overview-shared", shared()),
        ("overview-ranks", ranks::eight()),
        ("ranks", with(Popup::Ranks, ranks::eight())),
        ("ranks-many", with(Popup::Ranks, ranks::many())),
        ("attach-question", with(Popup::Attach { pid: 5570 }, h100())),
        ("blocks", at(View::Blocks, h100())),
        ("blocks-sim", at(View::Blocks, simulated())),
        ("blocks-none", at(View::Blocks, failing())),
        ("timeline", at(View::Timeline, h100())),
        ("timeline-own", {
            let mut model = at(View::Timeline, h100());
            model.ui.timeline.own = true;
            model
        }),
        ("timeline-tags", {
            let mut model = at(View::Timeline, h100());
            model.ui.timeline.by_tag = true;
            model.tags = model.ui.process.map(memory::tags);
            model
        }),
        ("timeline-sim", at(View::Timeline, simulated())),
        ("hierarchy", hierarchy::card()),
        ("hierarchy-measuring", hierarchy::measuring()),
        ("hierarchy-question", with(Popup::Measure, hierarchy::card())),
        ("hierarchy-example", hierarchy::example()),
        ("unified", unified::unified()),
        ("unified-causes", unified::causes()),
        ("unified-list", unified::list()),
        ("unified-refused", unified::refused()),
        ("unified-none", at(View::Unified, h100())),
        ("overview-managed", at(View::Overview, unified::unified())),
        ("triage", {
            let mut model = at(View::Triage, h100());
            model.ui.process = model.failed().first().map(|process| process.id);
            let failed = model
                .live
                .processes
                .iter_mut()
                .find(|process| Some(process.id) == model.ui.process);
            if let Some(figures) = failed.and_then(|process| process.figures.as_mut()) {
                figures.ran_out = Some(RanOut {
                    requested: 3 << 30,
                    device_free: Some(1 << 29),
                    largest_free: Some(figures.largest_free),
                    ..RanOut::default()
                });
            }
            model
        }),
        ("triage-none", at(View::Triage, h100())),
        ("triage-pasted", {
            let mut model = at(View::Triage, h100());
            let text = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 3 has a total capacity of \
                        79.18 GiB of which 3.29 GiB is free. Including non-PyTorch memory, this process has 75.51 GiB memory in use. \
                        Of the allocated memory 50.50 GiB is allocated by PyTorch, and 24.50 GiB is reserved by PyTorch but unallocated.";
            model.ui.triage.pasted = Some(gpumem_triage::triage(text).into());
            model
        }),
        ("demo", at(View::Demo, simulated())),
        ("demo-fails", at(View::Demo, lesson(3))),
        ("demo-before-after", at(View::Demo, lesson(5))),
        ("demo-seen-again", {
            let mut model = at(View::Demo, lesson(5));
            model.ui.demo_back = 3;
            model
        }),
        (
            "demo-explained",
            with(Popup::Explain { scroll: 0 }, at(View::Demo, lesson(3))),
        ),
        ("demo-managed", unified::demo()),
        ("unified-simulated", at(View::Unified, unified::demo())),
        ("overview-managed-sim", at(View::Overview, unified::demo())),
        ("demo-list", list),
        ("help", with(Popup::Help { scroll: 0 }, h100())),
        (
            "findings",
            with(
                Popup::Findings {
                    chosen: None,
                    scroll: 0,
                },
                h100(),
            ),
        ),
        ("sort", with(Popup::Sort { selected: 3 }, h100())),
        ("fix", with(Popup::Fix { selected: 1 }, at(View::Demo, simulated()))),
    ]
}
