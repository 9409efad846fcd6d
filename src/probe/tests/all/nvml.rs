//! The probe's NVML side, with a fake library that plays scenarios.

use std::path::Path;
use std::time::Duration;

use gpumem_fake_nvml::FakeNvml;
use gpumem_probe::{Doubted, Gpu, GpuState, Memory, Nvml, NvmlState, ProcessKind, Reading, Root, host_memory};

use crate::{alone, is_alone};

const MIB: u64 = 1 << 20;

struct Stage {
    fake: FakeNvml,
    nvml: Nvml,
    _folder: tempfile::TempDir,
}

/// Returns a machine that plays `scenario`, with a driver that lacks these functions.
fn old_stage(scenario: &str, lacking: &[&str]) -> Stage {
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeNvml::install(folder.path(), scenario).unwrap();
    for function in lacking {
        fake.remove(function).unwrap();
    }
    let nvml = Nvml::load(Some(fake.path())).unwrap();
    Stage {
        fake,
        nvml,
        _folder: folder,
    }
}

fn stage(scenario: &str) -> Stage {
    old_stage(scenario, &[])
}

fn failure(scenario: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeNvml::install(folder.path(), scenario).unwrap();
    match Nvml::load(Some(fake.path())) {
        Err(NvmlState::Failed { error, hint }) => (error, hint),
        Err(other) => panic!("{scenario}: {other:?}"),
        Ok(_) => panic!("{scenario}: loaded"),
    }
}

#[test]
fn one_idle_h100() {
    let sample = stage("").nvml.sample();
    assert_eq!(sample.state, NvmlState::Ready);
    assert_eq!(sample.driver.as_deref(), Some("580.159.04"));
    assert_eq!(sample.cuda, Some((13, 0)));
    let [gpu] = &sample.gpus[..] else { panic!("{sample:?}") };
    assert_eq!(gpu.name, "NVIDIA H100 80GB HBM3");
    assert_eq!(gpu.uuid.unwrap()[..4], [0x6f, 0x5a, 0xe4, 0xc5]);
    assert_eq!(gpu.pci, "00000000:01:00.0");
    let memory = Memory {
        total: 81559 * MIB,
        used: Some(0),
        reserved: Some(480 * MIB),
        free: Some(81079 * MIB),
        ..Memory::default()
    };
    assert_eq!(gpu.memory, Reading::Value(memory));
    assert_eq!(gpu.host, None);
    assert_eq!(gpu.processes, Reading::Value(vec![]));
    assert_eq!(
        (&gpu.sensors.temperature, &gpu.sensors.power),
        (&Reading::Value(30), &Reading::Value(70_000))
    );
    assert_eq!(
        (&gpu.sensors.power_limit, &gpu.sensors.utilization),
        (&Reading::Value(700_000), &Reading::Value(0))
    );
}

#[test]
fn several_gpus_keep_their_figures_apart() {
    let mut stage = stage("gpus=3;gpu1.used=2G;gpu2.name=Tesla T4;gpu2.utilization=97;gpu2.memory_utilization=40");
    let gpus = stage.nvml.sample().gpus;
    assert_eq!(gpus.iter().map(|g| g.index).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(gpus[1].memory.value().unwrap().used.unwrap(), 2048 * MIB);
    assert_eq!(
        (gpus[0].memory.value().unwrap().used.unwrap(), gpus[2].name.as_str()),
        (0, "Tesla T4")
    );
    assert_eq!(
        (&gpus[2].sensors.utilization, &gpus[2].sensors.memory_utilization),
        (&Reading::Value(97), &Reading::Value(40))
    );
    assert_ne!(gpus[0].uuid, gpus[1].uuid);
}

#[test]
fn processes_are_merged_by_pid() {
    let mut stage = stage(
        "gpu0.process=30:3M:graphics;gpu0.process=10:-:compute;gpu0.process=20:7M:both;gpu0.process=40:1M:compute",
    );
    let gpu = stage.nvml.sample().gpus.remove(0);
    let listed: Vec<_> = gpu
        .processes
        .value()
        .unwrap()
        .iter()
        .map(|p| (p.pid, p.kind, p.used.clone(), p.mig))
        .collect();
    assert_eq!(
        listed,
        [
            (10, ProcessKind::Compute, Reading::NotSupported, None),
            (20, ProcessKind::Both, Reading::Value(7 * MIB), None),
            (30, ProcessKind::Graphics, Reading::Value(3 * MIB), None),
            (40, ProcessKind::Compute, Reading::Value(MIB), None),
        ]
    );
}

#[test]
fn hundreds_of_processes_fit() {
    let lines: Vec<String> = (1..=700).map(|pid| format!("gpu0.process={pid}:1M:compute")).collect();
    let mut stage = stage(&lines.join("\n"));
    assert_eq!(stage.nvml.sample().gpus[0].processes.value().unwrap().len(), 700);
    stage.fake.play("gpu0.process=1:1M:compute").unwrap();
    assert_eq!(stage.nvml.sample().gpus[0].processes.value().unwrap().len(), 1);
}

#[test]
fn process_lists_of_older_drivers() {
    let text = "gpu0.process=10:5M:compute;gpu0.process=11:6M:graphics";
    let newest = stage(text).nvml.sample().gpus.remove(0).processes;
    let lacking = [
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
    ];
    assert_eq!(old_stage(text, &lacking).nvml.sample().gpus[0].processes, newest);
    // Records had no fields for instances before MIG.
    let oldest = [
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetGraphicsRunningProcesses_v2",
    ];
    assert_eq!(old_stage(text, &oldest).nvml.sample().gpus[0].processes, newest);
    // The first drivers of R535 use larger records under the same name.
    let r535 = format!("{text};process_bytes=32");
    let mut stage = old_stage(&r535, &["nvmlDeviceGetRunningProcessDetailList"]);
    assert_eq!(stage.nvml.sample().gpus[0].processes, newest);
    assert_eq!(newest.value().unwrap().len(), 2);
}

#[test]
fn figures_without_permission_say_so() {
    let mut stage = stage("gpu0.processes=no_permission;gpu0.memory=no_permission");
    let gpu = stage.nvml.sample().gpus.remove(0);
    assert_eq!(
        (gpu.processes, gpu.memory),
        (Reading::NoPermission, Reading::NoPermission)
    );
    stage.fake.play("gpu0.processes=not_supported;gpu0.memory=999").unwrap();
    let gpu = stage.nvml.sample().gpus.remove(0);
    assert_eq!(
        (gpu.processes, gpu.memory),
        (Reading::NotSupported, Reading::Failed("Unknown Error".into()))
    );
}

#[test]
fn memory_v1_counts_the_drivers_share_as_used_and_says_so() {
    let text = "gpu0.used=100M";
    let gpu = old_stage(text, &["nvmlDeviceGetMemoryInfo_v2"])
        .nvml
        .sample()
        .gpus
        .remove(0);
    let memory = Memory {
        total: 81559 * MIB,
        used: Some(580 * MIB),
        reserved: None,
        free: Some(80979 * MIB),
        ..Memory::default()
    };
    assert_eq!(gpu.memory, Reading::Value(memory));
    assert_eq!(gpu.host, None);
}

/// Taken from the host's own figures, an idle GPU once seemed to use what the host's programs use.
#[test]
fn memory_that_is_shared_with_the_host() {
    for memory in ["memory=not_supported", "total=0;gpu0.reserved=0"] {
        let gb10 = format!("gpu0.name=NVIDIA GB10;gpu0.{memory}");
        let mut stage = stage(&format!(
            "{gb10};gpu0.process=10:5M:compute;gpu0.process=11:6M:graphics"
        ));
        let gpu = stage.nvml.sample().gpus.remove(0);
        let (memory, host) = (gpu.memory.value().unwrap(), gpu.host.unwrap());
        assert_eq!(memory.total, host_memory().value().unwrap().total);
        assert_eq!((memory.used, memory.reserved), (Some(11 * MIB), None));
        assert_eq!(memory.free, Some(host.available));
        assert!(host.free <= host.available && host.available < host.total, "{host:?}");
        assert_eq!(gpu.sensors.temperature, Reading::Value(30));
        // One process that is not counted leaves the sum unknown.
        stage.fake.play(&format!("{gb10};gpu0.process=10:-:compute")).unwrap();
        assert_eq!(stage.nvml.sample().gpus[0].memory.value().unwrap().used, None);
    }
}

/// A discrete card once showed the host's memory as its own.
#[test]
fn a_card_without_memory_figures_does_not_show_the_hosts() {
    let gpu = stage("gpu0.memory=not_supported").nvml.sample().gpus.remove(0);
    assert_eq!((gpu.memory, gpu.host), (Reading::NotSupported, None));
    let gpu = stage("gpu0.total=0;gpu0.reserved=0").nvml.sample().gpus.remove(0);
    let why = gpu.memory.reason().unwrap();
    assert!(why.starts_with("not reported") && gpu.host.is_none(), "{why}");
}

/// One impossible sum once discarded all figures, and percentages above 100 were shown.
#[test]
fn an_impossible_figure_does_not_discard_the_others() {
    const MAD: u64 = u64::MAX;
    let memory = |scenario: &str| *stage(scenario).nvml.sample().gpus[0].memory.value().unwrap();
    let mad_used = memory(&format!("gpu0.used={MAD};gpu0.free=79G"));
    let expected = Memory {
        total: 81559 * MIB,
        used: Some((81559 - 480 - (79 << 10)) * MIB),
        reserved: Some(480 * MIB),
        free: Some(79 << 30),
        doubted: Doubted {
            used: Some(MAD),
            ..Doubted::default()
        },
    };
    assert_eq!(mad_used, expected);
    // The free bytes are NVML's own figure. They were once recomputed.
    let free = memory("gpu0.used=1G;gpu0.free=70G");
    assert_eq!((free.used, free.free), (Some(1 << 30), Some(70 << 30)));
    let nothing = memory(&format!("gpu0.used={MAD}"));
    assert_eq!((nothing.total, nothing.used, nothing.free), (81559 * MIB, None, None));
    let scenario = "gpu0.utilization=4294967295;gpu0.memory_utilization=100;gpu0.process=10:16777216G:compute;gpu0.process=11:1G:compute";
    let gpu = stage(scenario).nvml.sample().gpus.remove(0);
    let why = gpu.sensors.utilization.reason().unwrap();
    assert!(why.contains("4294967295 %"), "{why}");
    assert_eq!(gpu.sensors.memory_utilization, Reading::Value(100));
    let list = gpu.processes.value().unwrap();
    assert!(list[0].used.reason().unwrap().contains("more than the device has"));
    assert_eq!(list[1].used, Reading::Value(1 << 30));
}

#[test]
fn mig_devices_have_memory_and_processes_of_their_own() {
    let mut stage = stage("gpu0.mig=2;gpu0.used=2G;gpu0.process=10:5M:compute:1;gpu0.process=11:6M:compute:2");
    let gpu = stage.nvml.sample().gpus.remove(0);
    assert_eq!(gpu.mig.len(), 2);
    assert_eq!(
        (gpu.mig[1].index, gpu.mig[1].instance, gpu.mig[1].name.as_str()),
        (1, Some(2), "1g.10gb")
    );
    assert!(gpu.mig[0].uuid.starts_with("MIG-") && gpu.mig[0].uuid != gpu.mig[1].uuid);
    assert_eq!(gpu.mig[0].memory.value().unwrap().used.unwrap(), 1024 * MIB);
    assert_eq!(listed(&gpu), [vec![(10, Some(1))], vec![(11, Some(2))], vec![]]);
    assert_eq!(gpu.sensors.utilization, Reading::NotSupported);
    stage.fake.play("gpu0.mig=0").unwrap();
    assert!(stage.nvml.sample().gpus[0].mig.is_empty());
}

/// Returns pids and instances of the processes on each MIG device, and then of the GPU's other processes.
fn listed(gpu: &Gpu) -> Vec<Vec<(u32, Option<u32>)>> {
    let lists = gpu.mig.iter().map(|part| &part.processes).chain([&gpu.processes]);
    let told =
        |list: &Reading<Vec<gpumem_probe::GpuProcess>>| list.value().unwrap().iter().map(|p| (p.pid, p.mig)).collect();
    lists.map(told).collect()
}

#[test]
fn a_process_on_two_mig_devices_is_on_both() {
    let scenario = "gpu0.mig=2;gpu0.process=10:5M:compute:1;gpu0.process=10:6M:compute:2;gpu0.process=12:1M:compute";
    let gpu = stage(scenario).nvml.sample().gpus.remove(0);
    let expected = [vec![(10, Some(1))], vec![(10, Some(2))], vec![(12, None)]];
    assert_eq!(listed(&gpu), expected);
    assert_eq!(gpu.mig[1].processes.value().unwrap()[0].used, Reading::Value(6 * MIB));
    // Users who are not administrators only see the processes of the MIG devices.
    let scenario = format!("{scenario};gpu0.whole_list=no_permission");
    let gpu = stage(&scenario).nvml.sample().gpus.remove(0);
    assert_eq!(listed(&gpu), [vec![(10, Some(1))], vec![(10, Some(2))], vec![]]);
    assert_eq!(gpu.all_processes().count(), 2);
}

/// A process with its context in an MPS server was once not listed, or looked like any other.
#[test]
fn clients_of_mps_are_listed_and_marked() {
    let scenario = "gpu0.process=10:5M:compute;gpu0.process=11:6M:mps;gpu0.process=12:7M:compute+mps";
    for lacking in [
        &[][..],
        &["nvmlDeviceGetMPSComputeRunningProcesses_v3"],
        &[
            "nvmlDeviceGetMPSComputeRunningProcesses_v3",
            "nvmlDeviceGetMPSComputeRunningProcesses_v2",
        ],
    ] {
        let gpu = old_stage(scenario, lacking).nvml.sample().gpus.remove(0);
        let listed: Vec<_> = gpu.all_processes().map(|p| (p.pid, p.mps, p.used.clone())).collect();
        let value = |n| Reading::Value(n * MIB);
        assert_eq!(
            listed,
            [(10, false, value(5)), (11, true, value(6)), (12, true, value(7))],
            "{lacking:?}"
        );
    }
    // A driver that has none of the functions.
    let all = ["_v3", "_v2", ""].map(|version| format!("nvmlDeviceGetMPSComputeRunningProcesses{version}"));
    let gpu = old_stage(scenario, &all.each_ref().map(String::as_str))
        .nvml
        .sample()
        .gpus
        .remove(0);
    assert_eq!(gpu.all_processes().map(|p| p.pid).collect::<Vec<_>>(), [10, 12]);
}

#[test]
fn mig_may_be_switched_on_later() {
    let mut stage = stage("");
    assert!(stage.nvml.sample().gpus[0].mig.is_empty());
    stage.fake.play("gpu0.mig=7").unwrap();
    // A slow round may have begun before the change. The second one cannot have.
    let seen = (0..3)
        .find(|_| stage.nvml.wait_for_slow(Duration::from_secs(60)) && stage.nvml.sample().gpus[0].mig.len() == 7);
    assert!(seen.is_some());
}

#[test]
fn a_lost_gpu_keeps_its_row_and_last_figures() {
    let mut stage = stage("gpus=2;gpu1.used=2G;gpu1.process=10:5M:compute");
    let before = stage.nvml.sample();
    stage.fake.play("gpus=2;gpu0.used=1G;gpu1.state=lost").unwrap();
    let after = stage.nvml.sample();
    assert_eq!(after.state, NvmlState::Ready);
    assert_eq!(after.gpus[0].memory.value().unwrap().used.unwrap(), 1024 * MIB);
    assert_eq!(after.gpus[1].state, GpuState::Lost("GPU is lost".into()));
    assert_eq!(after.gpus[1].memory, before.gpus[1].memory);
    assert_eq!(after.gpus[1].processes, before.gpus[1].processes);
    assert_eq!(after.gpus[1].uuid, before.gpus[1].uuid);
    stage.fake.play("gpus=2;gpu1.state=reset_required").unwrap();
    assert_eq!(
        stage.nvml.sample().gpus[1].state,
        GpuState::Lost("GPU requires reset".into())
    );
    stage.fake.play("gpus=2;gpu1.used=3G").unwrap();
    let back = stage.nvml.sample();
    assert_eq!(back.gpus[1].state, GpuState::Present);
    assert_eq!(back.gpus[1].memory.value().unwrap().used.unwrap(), 3072 * MIB);
}

/// NVML still returned the card's handle, and its name and UUID were overwritten with nothing.
#[test]
fn a_card_that_stops_answering_keeps_its_identity() {
    for (key, code, words) in [
        ("answers", "lost", "GPU is lost"),
        ("answers", "reset_required", "GPU requires reset"),
        ("answers", "28", "GPU not found"),
        ("sensors", "lost", "GPU is lost"),
        ("processes", "reset_required", "GPU requires reset"),
        ("state", "lost", "GPU is lost"),
    ] {
        let mut stage = stage("gpus=2;gpu1.used=2G;gpu1.process=10:5M:compute");
        let before = stage.nvml.sample().gpus.remove(1);
        stage.fake.play(&format!("gpus=2;gpu1.{key}={code}")).unwrap();
        for _ in 0..3 {
            let after = stage.nvml.sample().gpus.remove(1);
            assert_eq!(after.state, GpuState::Lost(words.into()), "{key}={code}");
            let known = Gpu {
                state: GpuState::Present,
                pcie_age: None,
                sensors: after.sensors.clone(),
                ..after
            };
            let before = Gpu {
                sensors: known.sensors.clone(),
                ..before.clone()
            };
            assert_eq!(known, before, "{key}={code}");
        }
        stage.fake.play("gpus=2;gpu1.used=3G").unwrap();
        assert_eq!(stage.nvml.sample().gpus[1].state, GpuState::Present);
    }
}

/// The library is loaded again, and cards that do not come back were once forgotten.
#[test]
fn cards_are_remembered_when_the_driver_is_loaded_again() {
    let mut first = stage("gpus=2;gpu1.used=2G");
    let known = first.nvml.sample().gpus;
    let mut again = stage("gpus=2;gpu1.state=lost");
    again.nvml.remember(known.clone());
    let sample = again.nvml.sample();
    assert_eq!(sample.gpus[0].state, GpuState::Present);
    assert_eq!(sample.gpus[1].state, GpuState::Lost("GPU is lost".into()));
    assert_eq!(
        (sample.gpus[1].uuid, &sample.gpus[1].memory),
        (known[1].uuid, &known[1].memory)
    );
    assert_eq!(sample.gpus.len(), 2);
}

/// `--device GPU-...` once found nothing for a card that was lost before the first sample.
#[test]
fn the_kernel_module_names_a_card_that_was_lost_before() {
    let root = tempfile::tempdir().unwrap();
    for (bus, uuid, excluded) in [
        ("0000:01:00.0", "11", "No"),
        ("0000:02:00.0", "22", "No"),
        ("0000:03:00.0", "33", "Yes"),
    ] {
        let folder = root.path().join("proc/driver/nvidia/gpus").join(bus);
        std::fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "Model: \t\t NVIDIA A100\nIRQ:   \t\t 42\nGPU UUID: \t GPU-{uuid}{uuid}{uuid}{uuid}-0000-0000-0000-000000000000\n\
             Bus Location: \t {bus}\nGPU Excluded:\t {excluded}\n"
        );
        std::fs::write(folder.join("information"), text).unwrap();
    }
    let second = |scenario: &str| {
        let folder = tempfile::tempdir().unwrap();
        let fake = FakeNvml::install(folder.path(), scenario).unwrap();
        let mut nvml = Nvml::load_below(Some(fake.path()), Root::at(root.path())).unwrap();
        nvml.sample().gpus.remove(1)
    };
    let gpu = second("gpus=2;gpu1.state=lost");
    assert_eq!(gpu.state, GpuState::Lost("GPU is lost".into()));
    assert_eq!(
        (gpu.name.as_str(), gpu.pci.as_str()),
        ("NVIDIA A100", "00000000:02:00.0")
    );
    assert_eq!(gpu.uuid.unwrap()[..4], [0x22; 4]);
    // If NVML and the kernel module count different numbers of GPUs, they cannot be matched.
    let gpu = second("gpus=3;gpu1.state=lost");
    assert_eq!((gpu.name.as_str(), gpu.uuid), ("", None));
}

#[test]
fn a_gpu_lost_from_the_start_has_a_row() {
    let sample = stage("gpus=2;gpu0.state=lost").nvml.sample();
    assert_eq!(sample.gpus[0].state, GpuState::Lost("GPU is lost".into()));
    assert_eq!(sample.gpus[0].memory, Reading::Pending);
    assert_eq!(sample.gpus[1].state, GpuState::Present);
}

#[test]
fn gpus_come_and_go() {
    let mut stage = stage("gpus=1");
    assert_eq!(stage.nvml.sample().gpus.len(), 1);
    stage.fake.play("gpus=3;gpu2.used=1G").unwrap();
    assert_eq!(stage.nvml.sample().gpus.len(), 3);
    stage.fake.play("gpus=0").unwrap();
    let gone = stage.nvml.sample();
    assert_eq!(gone.gpus.len(), 3);
    assert!(gone.gpus.iter().all(|g| matches!(g.state, GpuState::Lost(_))));
    assert_eq!(gone.gpus[2].memory.value().unwrap().used.unwrap(), 1024 * MIB);
}

#[test]
fn a_gpu_is_followed_when_the_numbers_shift() {
    let [a, b, c] =
        ['a', 'b', 'c'].map(|x| format!("uuid=GPU-{0}{0}{0}{0}{0}{0}{0}{0}-0000-0000-0000-000000000000", x));
    let mut stage = stage(&format!("gpus=2;gpu0.{a};gpu0.used=1G;gpu1.{b};gpu1.used=2G"));
    let names = |s: &gpumem_probe::NvmlSample| s.gpus.iter().map(|g| g.uuid.unwrap()[0]).collect::<Vec<_>>();
    assert_eq!(names(&stage.nvml.sample()), [0xaa, 0xbb]);
    // The first is removed, so the second is number 0 now.
    stage.fake.play(&format!("gpus=1;gpu0.{b};gpu0.used=3G")).unwrap();
    let sample = stage.nvml.sample();
    assert_eq!(names(&sample), [0xbb, 0xaa]);
    let indexes = |s: &gpumem_probe::NvmlSample| s.gpus.iter().map(|g| g.index).collect::<Vec<_>>();
    assert_eq!(indexes(&sample), [0, 1], "no two have the same");
    let gone = "no longer listed by the driver, which had it as GPU 0";
    assert_eq!(sample.gpus[1].state, GpuState::Lost(gone.into()));
    assert_eq!((sample.gpus[0].index, &sample.gpus[0].state), (0, &GpuState::Present));
    assert_eq!(sample.gpus[0].memory.value().unwrap().used.unwrap(), 3072 * MIB);
    assert_eq!(sample.gpus[1].memory.value().unwrap().used.unwrap(), 1024 * MIB);
    // Another is inserted before it.
    stage.fake.play(&format!("gpus=2;gpu0.{c};gpu1.{b}")).unwrap();
    let sample = stage.nvml.sample();
    assert_eq!(
        (names(&sample), indexes(&sample)),
        (vec![0xcc, 0xbb, 0xaa], vec![0, 1, 2])
    );
    assert_eq!(sample.gpus[2].state, GpuState::Lost(gone.into()));
}

#[test]
fn hostile_texts_and_ids_are_harmless() {
    let mut stage = stage(
        "gpu0.name=\\x1b]0\\x3bx\\x07\\xc2\\x9b31mcard
         gpu0.uuid=GPU-\\x1b[2J
         gpu0.pci=\\x1b[1m00000000:01:00.0
         driver=1\x1b[7m",
    );
    let sample = stage.nvml.sample();
    let gpu = &sample.gpus[0];
    for text in [&gpu.name, &gpu.pci, sample.driver.as_ref().unwrap()] {
        assert!(!text.is_empty() && !text.chars().any(char::is_control), "{text:?}");
    }
    assert_eq!(gpu.uuid, None);
    assert_eq!(gpu.memory.value().unwrap().total, 81559 * MIB);
}

/// The wrapper crate does not pass the bytes on.
#[test]
fn a_name_that_is_not_utf8_says_so() {
    let gpu = stage("gpu0.name=card\\xff").nvml.sample().gpus.remove(0);
    assert_eq!(gpu.name, "the driver's text is not UTF-8");
    assert_eq!(gpu.memory.value().unwrap().total, 81559 * MIB);
}

#[test]
fn failing_initialisation_says_what_to_do() {
    let (error, hint) = failure("init=driver_not_loaded");
    assert!(
        error == "Driver Not Loaded" && hint.contains("modprobe nvidia"),
        "{error}: {hint}"
    );
    let (error, hint) = failure("init=version_mismatch");
    assert!(
        error == "Driver/library version mismatch" && hint.contains("reboot"),
        "{error}: {hint}"
    );
    let (error, hint) = failure("init=no_permission");
    assert!(
        error == "Insufficient Permissions" && hint.contains("/dev/nvidia"),
        "{error}: {hint}"
    );
    let (error, hint) = failure("init=unknown");
    assert!(
        error == "Unknown Error" && hint.contains("nvidia-smi"),
        "{error}: {hint}"
    );
    assert!(failure("init=12345").0.contains("Unknown"));
}

#[test]
fn a_driver_that_goes_away_is_a_failure_with_the_last_figures() {
    let mut stage = stage("gpu0.used=1G");
    stage.nvml.sample();
    stage.fake.play("calls=driver_not_loaded").unwrap();
    let sample = stage.nvml.sample();
    assert!(matches!(sample.state, NvmlState::Failed { .. }), "{:?}", sample.state);
    assert_eq!(sample.gpus[0].state, GpuState::Lost("Driver Not Loaded".into()));
    assert_eq!(sample.gpus[0].memory.value().unwrap().used.unwrap(), 1024 * MIB);
    stage.fake.play("").unwrap();
    assert_eq!(stage.nvml.sample().state, NvmlState::Ready);
}

#[test]
fn only_an_absent_library_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let load = |path: &Path| Nvml::load(Some(path)).err();
    assert_eq!(load(&folder.path().join("libnvidia-ml.so.1")), Some(NvmlState::Missing));
    // Container runtimes may leave an empty file in place of the library.
    for bytes in [&b""[..], b"not a library", b"\x7fELF\x02\x01\x01"] {
        let file = folder.path().join("libnvidia-ml.so.1");
        std::fs::write(&file, bytes).unwrap();
        assert!(
            matches!(load(&file), Some(NvmlState::Failed { .. })),
            "{bytes:?}: {:?}",
            load(&file)
        );
    }
    for function in ["nvmlInit_v2", "nvmlShutdown"] {
        let fake = FakeNvml::install(folder.path(), "").unwrap();
        fake.remove(function).unwrap();
        assert!(matches!(load(fake.path()), Some(NvmlState::Failed { error, .. }) if error.contains("lacks")));
    }
}

#[test]
fn the_environment_can_name_another_library() {
    // The environment belongs to the whole process, so the test has one of its own.
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeNvml::install(folder.path(), "gpus=5").unwrap();
    for (test, library) in [
        ("nvml::inner_sees_five_gpus", fake.path().to_str().unwrap()),
        ("nvml::inner_sees_no_library", "/nonexistent/libnvidia-ml.so.1"),
    ] {
        alone(test, &[("GPUMEM_NVML", library)]);
    }
}

#[test]
fn inner_sees_five_gpus() {
    if is_alone() {
        assert_eq!(Nvml::load(None).unwrap().sample().gpus.len(), 5);
    }
}

#[test]
fn inner_sees_no_library() {
    if is_alone() {
        assert_eq!(Nvml::load(None).err(), Some(NvmlState::Missing));
    }
}

#[test]
fn slow_queries_do_not_delay_samples() {
    // A round of PCIe queries takes 20 s here. 200 samples are done during the first round.
    let mut stage = stage("gpu0.pcie_delay_ms=10000");
    for used in 0..200 {
        stage
            .fake
            .play(&format!("gpu0.pcie_delay_ms=10000;gpu0.used={used}M"))
            .unwrap();
        let gpu = stage.nvml.sample().gpus.remove(0);
        assert_eq!(gpu.memory.value().unwrap().used.unwrap(), used * MIB);
        assert_eq!((gpu.sensors.pcie_rx, gpu.pcie_age), (Reading::Pending, None));
    }
    assert!(!stage.nvml.wait_for_slow(Duration::from_millis(1)));
}

#[test]
fn slow_figures_arrive_with_their_age() {
    let mut stage = stage("gpus=2;gpu1.pcie_rx=5;gpu1.pcie_tx=1200000");
    assert_eq!(stage.nvml.sample().gpus[1].sensors.pcie_rx, Reading::Pending);
    assert!(stage.nvml.wait_for_slow(Duration::from_secs(60)));
    let gpu = stage.nvml.sample().gpus.remove(1);
    assert_eq!(
        (gpu.sensors.pcie_rx, gpu.sensors.pcie_tx),
        (Reading::Value(5_000), Reading::Value(1_200_000_000))
    );
    let first = gpu.pcie_age.unwrap();
    // A lost GPU's figures get older.
    stage.fake.play("gpus=2;gpu1.state=lost").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let gpu = stage.nvml.sample().gpus.remove(1);
    assert_eq!(gpu.sensors.pcie_rx, Reading::Value(5_000));
    assert!(gpu.pcie_age.unwrap() >= first + Duration::from_millis(20));
}
