#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use gpumem_channel::{DeviceKind, DeviceMap, FreeSums, Identity, Snapshot};
use gpumem_probe::{
    Gpu, GpuProcess, GpuState, HostMemory, Memory, NvmlSample, NvmlState, ProcessKind, Reading, Sensors,
};
use serde_json::{Value, json};

use super::*;
use crate::event::Event;
use crate::model::{Channel, ChannelKey, ChannelSample, Sample};
use crate::update::update;

fn report(sample: NvmlSample) -> Value {
    let mut model = Model::default();
    model.setup.no_demo = true;
    let at = 5_000_000;
    update(&mut model, at, Event::sampled(at, Sample::Nvml(sample)));
    serde_json::from_str(&document(&model).unwrap()).unwrap()
}

fn card() -> Gpu {
    Gpu {
        uuid: Some([0xab; 16]),
        name: "H100 \"quoted\" \u{fffd}".into(),
        memory: Reading::Value(Memory {
            total: 100,
            used: Some(60),
            reserved: Some(10),
            free: Some(30),
            ..Memory::default()
        }),
        sensors: Sensors {
            utilization: Reading::Value(37),
            power: Reading::Value(71_500),
            temperature: Reading::NotSupported,
            ..Sensors::default()
        },
        processes: Reading::Value(vec![GpuProcess {
            pid: 7,
            kind: ProcessKind::Compute,
            used: Reading::NoPermission,
            mig: None,
            mps: false,
        }]),
        ..Gpu::default()
    }
}

#[test]
fn card_is_reported_with_units_and_reasons() {
    let sample = NvmlSample {
        state: NvmlState::Ready,
        gpus: vec![card()],
        cuda: Some((13, 0)),
        ..Default::default()
    };
    let document = report(sample);
    assert_eq!(document["schema"], SCHEMA);
    assert_eq!(document["time_unix_ms"], 5);
    assert_eq!(
        document["nvml"],
        json!({"state": "ok", "error": null, "hint": null, "driver": null, "cuda": "13.0"})
    );
    let device = &document["devices"][0];
    assert_eq!(device["uuid"], "GPU-abababab-abab-abab-abab-abababababab");
    assert_eq!(device["name"], "H100 \"quoted\" \u{fffd}");
    assert_eq!(device["utilization"], 0.37);
    assert_eq!(device["power_watts"], 71.5);
    let memory = &device["memory"];
    assert_eq!(
        (&memory["other"], &memory["driver_reserved"], &memory["free"]),
        (&json!(60), &json!(10), &json!(30))
    );
    assert_eq!(device["temperature_celsius"], Value::Null);
    assert_eq!(device["unavailable"]["temperature_celsius"], "not supported");
    let process = &document["processes"][0];
    assert_eq!(
        (&process["nvml"], &process["unavailable"]["nvml"]),
        (&Value::Null, &json!("no permission"))
    );
    assert_eq!(
        (&process["allocator"], &process["unavailable"]["allocator"]),
        (&Value::Null, &json!("not publishing"))
    );
}

/// With `--watch` a driver that hangs leaves its last figures in the document, beside new ones of other sources.
#[test]
fn each_source_has_the_time_of_its_newest_sample() {
    let mut model = Model::default();
    for at in [5_000_000, 9_000_000] {
        update(
            &mut model,
            at,
            Event::sampled(at, Sample::Channels(ChannelSample::default())),
        );
        if at == 5_000_000 {
            update(&mut model, at, Event::sampled(at, Sample::Nvml(NvmlSample::default())));
        }
    }
    let document: Value = serde_json::from_str(&document(&model).unwrap()).unwrap();
    assert_eq!(document["sampled_unix_ms"], json!({"channels": 9, "nvml": 5}));
    assert_eq!(document["time_unix_ms"], 9);
    // The names are those that sources have elsewhere in the document and in the list of threads.
    let names: Vec<&str> = source::all().iter().map(|source| source.name()).collect();
    let sources = [
        SourceId::Nvml,
        SourceId::Channels,
        SourceId::Processes,
        SourceId::Managed,
    ];
    assert_eq!(sources.map(source_name).to_vec(), names);
}

#[test]
fn every_null_of_a_device_has_its_reason() {
    let sample = NvmlSample {
        state: NvmlState::Ready,
        gpus: vec![Gpu {
            state: GpuState::Lost("fell off the bus".into()),
            ..Gpu::default()
        }],
        ..Default::default()
    };
    let document = report(sample);
    let device = document["devices"][0].as_object().unwrap();
    let identity = ["uuid", "pci", "part_of", "host_memory"];
    for (field, value) in device
        .iter()
        .filter(|(field, value)| value.is_null() && !identity.contains(&field.as_str()))
    {
        assert!(device["unavailable"][field].is_string(), "{field}: {value}");
    }
    assert_eq!(
        (&device["state"], &device["unavailable"]["state"]),
        (&json!("lost"), &json!("fell off the bus"))
    );
}

/// An object that gives reasons for its nulls gives one for each.
#[test]
fn every_null_has_its_reason() {
    let reported = |total, reserved| {
        Reading::Value(Memory {
            total,
            used: Some(60),
            reserved,
            free: Some(total - 60 - reserved.unwrap_or(0)),
            ..Memory::default()
        })
    };
    let mig = |index, memory| gpumem_probe::MigDevice {
        index,
        memory,
        ..Default::default()
    };
    let gpu = |index: u8, memory, shared: bool, mig| Gpu {
        index: index.into(),
        uuid: Some([index; 16]),
        memory,
        host: shared.then(HostMemory::default),
        mig,
        ..card()
    };
    let sample = NvmlSample {
        state: NvmlState::Ready,
        gpus: vec![
            gpu(
                1,
                reported(100, Some(10)),
                false,
                vec![mig(0, reported(80, Some(1))), mig(1, reported(80, None))],
            ),
            gpu(2, reported(100, None), true, vec![mig(0, Reading::NotSupported)]),
            gpu(3, reported(100, None), false, vec![]),
            gpu(4, Reading::NoPermission, false, vec![]),
            Gpu {
                name: String::new(),
                ..gpu(5, Reading::Pending, false, vec![])
            },
        ],
        ..Default::default()
    };
    let document = report(sample);
    // These are optional and need no reason.
    let identity = [
        "uuid",
        "pci",
        "job",
        "rank",
        "ranks",
        "outlier",
        "part_of",
        "host_memory",
    ];
    let mut todo = vec![&document];
    let mut nulls = 0;
    while let Some(value) = todo.pop() {
        todo.extend(value.as_array().into_iter().flatten());
        let Some(object) = value.as_object() else { continue };
        todo.extend(object.values());
        let Some(reasons) = object.get("unavailable") else {
            continue;
        };
        for (field, _) in object
            .iter()
            .filter(|(f, v)| v.is_null() && !identity.contains(&f.as_str()))
        {
            assert!(reasons[field].is_string(), "{field} of {value}");
            nulls += 1;
        }
    }
    assert!(nulls > 20, "{nulls}");
    assert_eq!(document["devices"][7]["name"], Value::Null);
}

#[test]
fn failing_library_is_reported_with_a_hint() {
    let state = NvmlState::Failed {
        error: "version mismatch".into(),
        hint: "reboot".into(),
    };
    let document = report(NvmlSample {
        state,
        ..Default::default()
    });
    assert_eq!(document["nvml"]["state"], "failing");
    assert_eq!(
        (&document["nvml"]["error"], &document["nvml"]["hint"]),
        (&json!("version mismatch"), &json!("reboot"))
    );
    assert_eq!(document["findings"][0]["severity"], "error");
}

/// A model without NVML, with a program that publishes and has a pool on each of `devices` devices.
fn publishing(devices: u8) -> Model {
    let pool = PoolShare {
        name: "tenant-a".into(),
        segments: 2,
        reserved: 30 << 20,
        free: FreeSums {
            bytes: 10 << 20,
            largest: 6 << 20,
            as_large: 1,
            count: 3,
        },
    };
    let figures = Figures {
        reserved: 64 << 20,
        pools: vec![pool],
        ..Figures::default()
    };
    let device = |number| DeviceMap {
        device: gpumem_channel::Device {
            uuid: [number; 16],
            ordinal: number.into(),
            kind: DeviceKind::Cuda,
            ..Default::default()
        },
        ..DeviceMap::default()
    };
    let snapshot = Snapshot {
        identity: Arc::new(Identity {
            pid: 4121,
            ..Identity::default()
        }),
        devices: (0..devices).map(device).collect(),
        ..Snapshot::default()
    };
    let channel = Channel {
        key: ChannelKey(1, 2),
        pid: Some(4121),
        disputed: None,
        snapshot: Arc::new(snapshot),
        figures: vec![Some(figures); devices.into()].into(),
        error: None,
        read_at: 0,
        last_sign: None,
    };
    let sample = ChannelSample {
        channels: vec![channel],
        ..ChannelSample::default()
    };
    let mut model = Model::default();
    model.setup.no_demo = true;
    let missing = NvmlSample {
        state: NvmlState::Missing,
        ..NvmlSample::default()
    };
    update(&mut model, 0, Event::sampled(0, Sample::Nvml(missing)));
    update(&mut model, 0, Event::sampled(0, Sample::Channels(sample)));
    model
}

/// `devices` has no entry for the simulated device of a black box.
#[test]
fn process_whose_device_is_gone_names_none() {
    let mut model = publishing(1);
    let reported = |model: &Model| -> Value { serde_json::from_str(&document(model).unwrap()).unwrap() };
    model.live.findings = vec![Finding {
        severity: Severity::Info,
        process: Some(model.live.processes[0].id),
        about: Default::default(),
        text: String::new(),
    }];
    let before = reported(&model);
    assert_eq!(before["processes"][0]["device"], "CUDA 0");
    assert_eq!(before["findings"][0]["device"], "CUDA 0");
    model.live.processes[0].device_label = "Simulated GPU".into();
    model.live.devices.clear();
    let after = reported(&model);
    let process = &after["processes"][0];
    assert_eq!(
        (&process["device"], &after["findings"][0]["device"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(process["unavailable"]["device"], "Simulated GPU is gone or not shown");
}

#[test]
fn problems_with_channels_have_their_kind() {
    let mut model = Model::default();
    let problem = |file: &str, kind| Problem {
        file: file.into(),
        kind,
        text: "too much".into(),
    };
    model.live.problems = vec![
        problem("1-2-0.gpumem", ProblemKind::File),
        problem("/dev/shm/x", ProblemKind::Directory),
        problem("/dev/shm", ProblemKind::Overflow),
    ];
    let document: Value = serde_json::from_str(&document(&model).unwrap()).unwrap();
    let reported = document["unreadable_channels"].as_array().unwrap();
    let kinds: Vec<_> = reported.iter().map(|p| p["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["file", "directory", "overflow"]);
    assert_eq!(reported[2]["file"], "/dev/shm");
}

#[test]
fn pools_are_reported_by_name() {
    let mut model = publishing(1);
    let document: Value = serde_json::from_str(&document(&model).unwrap()).unwrap();
    let pool = json!({
        "name": "tenant-a", "reserved": 30 << 20, "free_total": 10 << 20, "largest_free": 6 << 20, "segments": 2,
    });
    assert_eq!(document["processes"][0]["allocator"]["pools"], json!([pool]));
    let text = crate::report::text(&model, u16::MAX);
    let line = "  4121 pool tenant-a: 30.0 MiB reserved, 10.0 MiB of it free, the largest block 6.0 MiB\n";
    assert!(text.contains(line), "{text}");
    let figures = model.live.processes[0].figures.as_mut().unwrap();
    figures.pools[0].name = "pool (7, 1)".into();
    let text = crate::report::text(&model, u16::MAX);
    assert!(text.contains("  4121 pool (7, 1): 30.0 MiB reserved"), "{text}");
}

#[test]
fn budgets_and_pools_name_one_of_several_devices() {
    let text = crate::report::text(&publishing(2), u16::MAX);
    for device in 0..2 {
        let line = format!("\n  4121 on CUDA {device} pool tenant-a: 30.0 MiB reserved");
        assert!(text.contains(&line), "{text}");
    }
}

#[test]
fn job_takes_the_place_of_the_command() {
    let mut model = publishing(1);
    model.live.processes[0].label = "demo replay".into();
    let unnamed = crate::report::text(&model, u16::MAX);
    assert!(
        unnamed.contains("  demo replay  ") && !unnamed.contains("JOB"),
        "{unnamed}"
    );
    model.live.processes[0].job = "replay moe.csv.gz".into();
    let named = crate::report::text(&model, u16::MAX);
    assert!(
        named.contains("  replay moe.csv.gz  ") && named.contains("  JOB/COMMAND  "),
        "{named}"
    );
}

#[test]
fn sentences_are_wrapped_where_lines_are_short() {
    let mut model = publishing(1);
    model.live.findings = vec![crate::model::Finding {
        severity: crate::model::Severity::Warning,
        process: None,
        about: Default::default(),
        text: "one two three".into(),
    }];
    assert!(crate::report::text(&model, 14).ends_with("\nwarning: one\n  two three\n"));
    assert!(crate::report::text(&model, u16::MAX).ends_with("\nwarning: one two three\n"));
    let id = crate::model::ProcessId {
        device: crate::model::DeviceKey::NvmlIndex(0),
        owner: crate::model::Owner::Channel(crate::model::ChannelKey(1, 2)),
    };
    model.live.past.insert(id);
    let text = crate::report::text(&model, 60);
    let reported = "\n\nblack boxes of programs that ended: 1 (--json and the\n  dashboard's b list them)\n";
    assert!(text.contains(reported), "{text}");
}

#[test]
fn severity_of_a_finding_is_a_word() {
    use crate::model::Severity;
    let mut model = publishing(1);
    let finding = |severity| crate::model::Finding {
        severity,
        process: None,
        about: Default::default(),
        text: "it is so".into(),
    };
    model.live.findings = [Severity::Error, Severity::Warning, Severity::Info].map(finding).into();
    let text = crate::report::text(&model, 80);
    assert!(
        text.ends_with("\n\nerror: it is so\nwarning: it is so\nnote: it is so\n"),
        "{text}"
    );
}

/// Names are cut first, then columns are dropped, but not the device column if a program uses several devices.
#[test]
fn process_table_fits_if_possible() {
    for devices in [1, 2] {
        let mut model = publishing(devices);
        for process in &mut model.live.processes {
            process.job = "a job of a name that is longer than is useful".into();
            process.user = "somebody".into();
            process.nvml = Reading::Value(1 << 30);
            if let Some(figures) = &mut process.figures {
                (figures.mapped, figures.complete, figures.free) = (true, true, 1);
            }
        }
        let heading = |room: u16| {
            let text = crate::report::text(&model, room);
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(room), "{room}: {line}");
            }
            let line = text.lines().find(|line| line.contains("PID")).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        let all = "DEVICE PID USER JOB/COMMAND NVML RESERVED ALLOC CACHED FRAG LARGEST FREE STATE";
        assert_eq!(heading(140), all);
        assert_eq!(heading(110), all);
        let at_80 = "DEVICE PID JOB/COMMAND NVML RESERVED ALLOC CACHED FRAG STATE";
        assert_eq!(heading(80), at_80);
        match devices {
            1 => assert_eq!(heading(64), "PID JOB/COMMAND NVML ALLOC CACHED FRAG STATE"),
            _ => assert_eq!(heading(64), "DEVICE PID JOB/COMMAND NVML ALLOC CACHED STATE"),
        }
    }
}

/// Columns of dashes would take the width of names.
#[test]
fn process_table_has_no_column_of_dashes() {
    let mut model = publishing(2);
    let heading = |model: &Model| {
        let text = crate::report::text(model, 140);
        let line = text.lines().find(|line| line.contains("PID")).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let published = heading(&model);
    assert!(
        published.contains("RESERVED") && !published.contains("NVML"),
        "{published}"
    );
    for process in &mut model.live.processes {
        (process.figures, process.nvml) = (None, Reading::Value(1 << 30));
    }
    assert_eq!(heading(&model), "DEVICE PID USER COMMAND NVML STATE");
}

/// Characters of some scripts take two columns. Columns stay aligned, and a cut name is marked.
#[test]
fn wide_characters_keep_columns_aligned() {
    use crate::wrap::width;
    let mut model = publishing(2);
    for (process, job) in model
        .live
        .processes
        .iter_mut()
        .zip(["\u{5b66}\u{7fd2}", "bert-large-train"])
    {
        process.job = job.repeat(4);
    }
    for room in [76, 120] {
        let text = crate::report::text(&model, room);
        let states: Vec<u16> = text
            .lines()
            .filter_map(|line| Some(width(line.split_once("publishing")?.0)))
            .collect();
        assert!(states.len() == 2 && states[0] == states[1], "{room}: {text}");
        assert!(text.lines().all(|line| width(line) <= room), "{room}: {text}");
        assert!(text.contains(".. "), "{room}: {text}");
    }
}

#[test]
fn missing_nvml_is_not_a_failure() {
    let model = publishing(1);
    let text = crate::report::text(&model, u16::MAX);
    assert!(text.contains("no NVML") && !text.contains("failed"), "{text}");
    let document: Value = serde_json::from_str(&document(&model).unwrap()).unwrap();
    let process = &document["processes"][0];
    assert_eq!(
        (&process["nvml"], &process["unavailable"]["nvml"]),
        (&Value::Null, &json!("no NVML on this machine"))
    );
}

#[test]
fn stopped_process_is_reported_if_known() {
    let mut model = publishing(1);
    let mut reported = |stopped| {
        model.live.processes[0].stopped = stopped;
        let document: Value = serde_json::from_str(&document(&model).unwrap()).unwrap();
        let process = &document["processes"][0];
        assert_eq!(process["state"], "publishing");
        (process["stopped"].clone(), process["unavailable"]["stopped"].clone())
    };
    assert_eq!(reported(Some(true)), (json!(true), Value::Null));
    assert_eq!(reported(Some(false)), (json!(false), Value::Null));
    assert_eq!(reported(None), (Value::Null, json!("the process is not visible here")));
}

#[test]
fn black_box_says_when_its_program_ended() {
    let mut model = publishing(1);
    model.setup.realtime_offset = 7_000_000_000;
    let mut reported = |ended| {
        model.live.processes[0].ended = ended;
        let document: Value = serde_json::from_str(&document(&model).unwrap()).unwrap();
        let process = &document["processes"][0];
        (
            process["ended_unix_ms"].clone(),
            process["unavailable"]["ended_unix_ms"].clone(),
        )
    };
    assert_eq!(reported(None), (Value::Null, json!("it has not ended")));
    let ended = crate::model::Ended {
        at: 5_000_000_000,
        minutes: 0,
    };
    assert_eq!(reported(Some(ended)), (json!(12_000), Value::Null));
}

#[test]
fn hints_have_a_source_and_a_text() {
    use gpumem_probe::{Hint, HintKind, HintSource};
    let mut model = publishing(1);
    let reported = |model: &Model| -> Value {
        let document: Value = serde_json::from_str(&document(model).unwrap()).unwrap();
        document["processes"][0]["hints"].clone()
    };
    assert_eq!(reported(&model), json!([]));
    let value = "a \"b\" \u{fffd}".to_owned();
    let name = "PYTORCH_CUDA_ALLOC_CONF";
    let hints = [
        (HintSource::CommandLine(1), HintKind::LlamaCpp { layers: 33 }),
        (
            HintSource::Environment(model.live.processes[0].pid),
            HintKind::Variable { name, value },
        ),
        (HintSource::Libraries, HintKind::PyTorch),
    ];
    model.live.processes[0].hints = hints.into_iter().map(|(source, kind)| Hint { source, kind }).collect();
    let reported = reported(&model);
    assert_eq!(
        reported[0],
        json!({"source": "command-line", "text": "llama.cpp keeps up to 33 layers on the GPU (--n-gpu-layers) (from its parent 1)"})
    );
    assert_eq!(
        reported[1],
        json!({"source": "environment", "text": "PYTORCH_CUDA_ALLOC_CONF=a \"b\" \u{fffd}"})
    );
    assert_eq!(
        (&reported[2]["source"], reported.as_array().unwrap().len()),
        (&json!("libraries"), 3)
    );
}

/// Every field of the document is in `JSON.md`.
#[test]
fn documentation_names_every_field() {
    let sample = NvmlSample {
        state: NvmlState::Ready,
        gpus: vec![card()],
        ..Default::default()
    };
    let documentation = include_str!("../../JSON.md");
    let mut publishing = publishing(1);
    publishing.live.processes[0].hints = [gpumem_probe::Hint {
        source: gpumem_probe::HintSource::Libraries,
        kind: gpumem_probe::HintKind::PyTorch,
    }]
    .into();
    let publishing = document(&publishing).unwrap();
    let mut todo = vec![report(sample), serde_json::from_str(&publishing).unwrap()];
    while let Some(value) = todo.pop() {
        match value {
            Value::Object(map) => {
                for (field, value) in map {
                    assert!(
                        documentation.contains(&format!("`{field}`")),
                        "{field} is not documented"
                    );
                    if field != "unavailable" {
                        todo.push(value);
                    }
                }
            }
            Value::Array(list) => todo.extend(list),
            _ => {}
        }
    }
}

#[test]
fn ranks_say_how_they_differ_from_their_job() {
    let mut model = Model::default();
    model.setup.no_demo = true;
    let rank = |rank: u32, reserved: u64| {
        let identity = Identity {
            pid: 10 + rank,
            job: "pretrain".into(),
            rank: Some(rank).filter(|&rank| rank < 4),
            ..Identity::default()
        };
        let figures = Figures {
            reserved,
            ..Figures::default()
        };
        Channel {
            key: ChannelKey(1, rank.into()),
            pid: Some(identity.pid),
            disputed: None,
            snapshot: Arc::new(Snapshot {
                identity: Arc::new(identity),
                devices: vec![DeviceMap {
                    device: gpumem_channel::Device {
                        kind: DeviceKind::Cuda,
                        uuid: [7; 16],
                        ..Default::default()
                    },
                    ..Default::default()
                }],
                ..Snapshot::default()
            }),
            figures: [Some(figures)].into(),
            error: None,
            read_at: 0,
            last_sign: None,
        }
    };
    let gib = 1 << 30;
    let sample = ChannelSample {
        channels: vec![
            rank(0, 8 * gib),
            rank(1, 8 * gib),
            rank(2, 8 * gib),
            rank(3, 2 * gib),
            rank(4, gib),
        ],
        ..ChannelSample::default()
    };
    update(&mut model, 1, Event::sampled(1, Sample::Channels(sample)));
    let document: Value = serde_json::from_str(&document(&model).unwrap()).unwrap();
    let process = |pid: u32| {
        let processes = document["processes"].as_array().unwrap();
        processes.iter().find(|process| process["pid"] == pid).unwrap()
    };
    let outlier = json!({"figure": "reserved", "above_median": -6i64 * gib as i64});
    for (pid, ranks, expected) in [
        (10, json!(4), Value::Null),
        (13, json!(4), outlier),
        (14, Value::Null, Value::Null),
    ] {
        assert_eq!(
            (&process(pid)["ranks"], &process(pid)["outlier"]),
            (&ranks, &expected),
            "{pid}"
        );
    }
}
