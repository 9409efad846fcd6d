//! A machine with GPUs, played by a fake NVML.

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use gpumem_tests::{Background, Ended, Terminal, World, publish, said, uuid_of};
use serde_json::Value;

/// The pids are above the largest that Linux assigns.
const TWO_GPUS: &str = "gpus=2
gpu0.used=4G
gpu0.process=5000001:3G:compute
gpu1.used=2G
gpu1.process=5000002:2G:compute";

fn json(world: &World) -> (i32, Value) {
    let Output { status, stdout, .. } = world.command(&["--json"]).output().unwrap();
    (status.code().unwrap(), serde_json::from_slice(&stdout).unwrap())
}

fn parts(memory: &Value) -> (u64, u64) {
    let parts = ["allocated", "cached", "other", "host", "driver_reserved", "free"];
    let sum = parts.iter().map(|part| memory[part].as_u64().unwrap_or(0)).sum();
    (sum, memory["total"].as_u64().unwrap())
}

#[test]
fn every_gpu_has_its_bar_and_every_process_its_row() {
    let world = World::with_nvml(TWO_GPUS);
    let mut terminal = Terminal::start(&world, &[], 120, 40);
    terminal.wait_for(&["GPU 0  NVIDIA H100 80GB HBM3", "GPU 1  NVIDIA H100 80GB HBM3"]);
    terminal.wait_for(&["4.0 of 79.6 GiB used", "2.0 of 79.6 GiB used", "driver 580.159.04"]);
    for row in ["5000001  GPU 0", "5000002  GPU 1"] {
        terminal.wait(row, |screen| {
            screen
                .lines()
                .any(|line| line.contains(row) && line.contains("not publishing"))
        });
    }
    assert!(!terminal.text().contains("SIMULATED"));
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn the_parts_of_every_gpu_make_up_its_total() {
    let world = World::with_nvml(TWO_GPUS);
    let (code, document) = json(&world);
    assert_eq!((code, &document["simulated"]), (0, &Value::Bool(false)));
    for (device, used) in [(0, 4u64 << 30), (1, 2 << 30)] {
        let memory = &document["devices"][device]["memory"];
        let (sum, total) = parts(memory);
        assert_eq!((sum, total), (81559 << 20, 81559 << 20), "{memory}");
        assert_eq!(
            (memory["other"].as_u64(), memory["driver_reserved"].as_u64()),
            (Some(used), Some(480 << 20))
        );
    }
    let processes = document["processes"].as_array().unwrap();
    let told = processes
        .iter()
        .map(|p| (p["pid"].as_u64(), p["nvml"].as_u64(), p["allocator"].is_null()));
    let expected = [
        (Some(5000001), Some(3 << 30), true),
        (Some(5000002), Some(2 << 30), true),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn a_gpu_that_shares_the_hosts_memory_shows_that() {
    let world = World::with_nvml("gb10");
    let terminal = Terminal::start(&world, &[], 120, 40);
    terminal.wait_for(&["NVIDIA GB10", "GiB used"]);
    let (code, document) = json(&world);
    let device = &document["devices"][0];
    assert_eq!((code, &device["memory_is_host_memory"]), (0, &Value::Bool(true)));
    let memory = &device["memory"];
    let (sum, total) = parts(memory);
    assert_eq!(sum, total, "{device}");
    assert!(
        memory["driver_reserved"].is_null(),
        "the driver's share is not known: {memory}"
    );
    let why = memory["unavailable"]["driver_reserved"].as_str().unwrap();
    assert!(why.contains("host's memory"), "{why}");
    terminal.wait_for(&["uses the host's memory", "host's programs", "available"]);
    let report = world.command(&["--once"]).output().unwrap().stdout;
    let report = String::from_utf8(report).unwrap();
    assert!(report.contains("  driver: the GPU uses the host's memory"), "{report}");
    // An idle GPU uses nothing, whatever the host's programs do. The memory of its processes is counted one by one.
    assert_eq!(memory["other"], 0);
    let host = &device["host_memory"];
    assert_eq!(memory["free"], host["available"]);
    assert!(host["free"].as_u64() <= host["available"].as_u64(), "{host}");
    assert!(
        report.contains("  processes of the GPU 0 B + host's programs "),
        "{report}"
    );
    assert!(
        report.contains("  shared with host: ") && report.contains(" free (MemAvailable, MemFree)"),
        "{report}"
    );
    world.play("gpu0.name=NVIDIA GB10;gpu0.memory=not_supported;gpu0.process=5000001:3G:compute;gpu0.process=5000002:1G:graphics");
    let (_, document) = json(&world);
    assert_eq!(document["devices"][0]["memory"]["other"], 4u64 << 30);
    // If one process is not counted, the rest cannot be told apart.
    world.play("gpu0.name=NVIDIA GB10;gpu0.memory=not_supported;gpu0.process=5000001:-:compute");
    let (_, document) = json(&world);
    let memory = &document["devices"][0]["memory"];
    let why = memory["unavailable"]["host"].as_str().unwrap();
    assert!(
        memory["host"].is_null() && why.contains("does not count all"),
        "{memory}"
    );
}

#[test]
fn a_lost_gpu_keeps_its_row_and_the_others_go_on() {
    let world = World::with_nvml(TWO_GPUS);
    let mut terminal = Terminal::start(&world, &["--interval", "200ms"], 120, 40);
    terminal.wait_for(&["4.0 of 79.6 GiB used", "2.0 of 79.6 GiB used"]);
    world.play("gpus=2\ngpu0.used=6G\ngpu1.state=lost");
    terminal.wait_for(&["GPU 1 is lost", "6.0 of 79.6 GiB used"]);
    let panel = |screen: &str| {
        screen
            .lines()
            .any(|l| l.contains("GPU 1  NVIDIA H100") && l.contains("LOST"))
    };
    assert!(panel(&terminal.text()), "{}", terminal.text());
    world.play(TWO_GPUS);
    terminal.wait("GPU 1 again", |screen| {
        !screen.to_lowercase().contains("lost") && screen.contains("2.0 of 79.6 GiB used")
    });
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn a_failing_driver_is_an_error_and_never_a_simulation() {
    let cases = [
        ("driver_not_loaded", "modprobe nvidia"),
        ("version_mismatch", "reboot"),
        ("no_permission", "/dev/nvidia*"),
        ("unknown", "nvidia-smi"),
    ];
    for (init, advice) in cases {
        let world = World::with_nvml(&format!("init={init}"));
        let mut terminal = Terminal::start(&world, &["--interval", "100ms"], 100, 30);
        terminal.wait_for(&["NVML fails", advice]);
        // After another sample of the channels the error is still all there is.
        std::fs::write(world.channels().join("later.gpumem"), "no channel").unwrap();
        terminal.wait_for(&["cannot be read"]);
        assert!(terminal.children().is_empty(), "{init}");
        terminal.keys("7");
        terminal.wait_for(&["Demos", "fragmentation", "train"]);
        assert!(!terminal.text().contains("SIMULATED"), "{init}");
        terminal.keys("q");
        assert_eq!(terminal.ended(), Ended::Code(0), "{init}");

        let (code, document) = json(&world);
        assert_eq!(
            (code, &document["nvml"]["state"]),
            (3, &Value::from("failing")),
            "{init}"
        );
        assert!(document["nvml"]["hint"].as_str().unwrap().contains(advice), "{init}");
        assert_eq!(
            (&document["simulated"], &document["devices"]),
            (&Value::Bool(false), &Value::Array(vec![]))
        );
        let once = world.command(&["--once"]).output().unwrap();
        let said = String::from_utf8(once.stderr).unwrap();
        assert_eq!((once.status.code(), once.stdout.len()), (Some(3), 0));
        assert!(said.contains(advice), "{said}");
    }
}

#[test]
fn a_driver_that_is_loaded_later_is_found() {
    let world = World::with_nvml("init=driver_not_loaded");
    let terminal = Terminal::start(&world, &[], 120, 40);
    terminal.wait_for(&["NVML fails"]);
    world.play(TWO_GPUS);
    terminal.wait_for(&["4.0 of 79.6 GiB used", "5000002"]);
}

/// One query takes longer than this test waits for anything.
#[test]
fn a_query_that_hangs_holds_up_neither_the_others_nor_keys() {
    let world = World::with_nvml("gpus=2;gpu0.used=4G;gpu1.used=2G;gpu0.pcie_delay_ms=600000");
    let mut terminal = Terminal::start(&world, &["--interval", "200ms"], 120, 40);
    terminal.wait_for(&["4.0 of 79.6 GiB used", "2.0 of 79.6 GiB used"]);
    world.play("gpus=2;gpu0.used=6G;gpu1.used=3G;gpu0.pcie_delay_ms=600000");
    terminal.wait_for(&["6.0 of 79.6 GiB used", "3.0 of 79.6 GiB used"]);
    terminal.keys("3");
    terminal.wait_for(&["last 60 s"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

/// The publisher sees one GPU, which it calls 0 (`CUDA_VISIBLE_DEVICES=1`), and also has a context on the other one.
#[test]
fn a_publisher_is_joined_to_its_gpu_by_uuid_and_not_by_number() {
    let pid = std::process::id();
    let world = World::with_nvml(&format!(
        "gpus=2;gpu0.used=1G;gpu0.process={pid}:1G:compute;gpu1.used=2G;gpu1.process={pid}:2G:compute"
    ));
    let _publisher = publish(&world, uuid_of(1));
    let (code, document) = json(&world);
    let told = |device: &Value| {
        let memory = &device["memory"];
        ["allocated", "cached", "other"].map(|part| memory[part].as_u64().unwrap() >> 20)
    };
    let devices = document["devices"].as_array().unwrap();
    assert_eq!(
        (code, told(&devices[0]), told(&devices[1])),
        (0, [0, 0, 1024], [384, 128, 1536])
    );
    let rows = document["processes"].as_array().unwrap().iter();
    let rows = rows.map(|row| {
        (
            row["device"].as_str().unwrap(),
            row["state"].as_str().unwrap(),
            row["nvml"].as_u64(),
        )
    });
    let expected = [
        ("GPU 1", "publishing", Some(2 << 30)),
        ("GPU 0", "not-publishing", Some(1 << 30)),
    ];
    assert_eq!(rows.collect::<Vec<_>>(), expected);

    // A driver that numbers them the other way round.
    let [a, b] = ["000000000000", "000000000001"].map(|end| format!("uuid=GPU-6f5ae4c5-0000-4000-8000-{end}"));
    world.play(&format!(
        "gpus=2;gpu0.{b};gpu0.used=2G;gpu0.process={pid}:2G:compute;gpu1.{a};gpu1.used=1G"
    ));
    let mut terminal = Terminal::start(&world, &[], 120, 40);
    terminal.wait("it on GPU 0", |screen| {
        let of_it = |line: &&str| line.contains(&pid.to_string()) && line.contains(" publishing");
        screen
            .lines()
            .find(of_it)
            .is_some_and(|line| line.contains("GPU 0") && line.contains("2.0G"))
    });
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn mig_devices_are_devices_with_their_own_processes() {
    let scenario = "gpu0.mig=2;gpu0.used=2G;gpu0.process=5000001:1G:compute:1;gpu0.process=5000001:512M:compute+mps:2";
    let world = World::with_nvml(scenario);
    let mut terminal = Terminal::start(&world, &[], 120, 40);
    terminal.wait_for(&[
        "GPU 0:0  MIG 1g.10gb",
        "GPU 0:1  MIG 1g.10gb",
        "1.0 of 39.8 GiB used",
        "5000001",
        "MPS",
    ]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
    let (code, document) = json(&world);
    let devices: Vec<_> = document["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| &d["label"])
        .collect();
    assert_eq!(devices, ["GPU 0", "GPU 0:0", "GPU 0:1"]);
    assert_eq!(document["devices"][2]["part_of"], "GPU 0");
    let rows = |document: &Value| -> Vec<(String, u64, bool)> {
        let row = |p: &Value| {
            let device = p["device"].as_str().unwrap().to_owned();
            (
                device,
                p["nvml"].as_u64().unwrap() >> 20,
                p["mps_client"].as_bool().unwrap(),
            )
        };
        document["processes"].as_array().unwrap().iter().map(row).collect()
    };
    let expected = [("GPU 0:0".to_owned(), 1024, false), ("GPU 0:1".to_owned(), 512, true)];
    assert_eq!(rows(&document), expected, "one pid on two of them");
    let uuid = document["devices"][2]["uuid"].as_str().unwrap();
    assert!(uuid.starts_with("MIG-"), "{uuid}");
    for device in [uuid, &uuid[4..], "0:1"] {
        let output = world.command(&["--json", "--device", device]).output().unwrap();
        let chosen: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (chosen["devices"].as_array().unwrap().len(), rows(&chosen)),
            (1, expected[1..].to_vec()),
            "{device}"
        );
    }
    let output = world.command(&["--once", "--device", "0"]).output().unwrap();
    let text = said(&output.stdout);
    for line in ["GPU 0:0  MIG 1g.10gb  MIG-", "GPU 0:1  5000001", "not publishing, MPS"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let mig = document["devices"][0]["mig"].as_array().unwrap();
    assert_eq!((code, mig.len()), (0, 2));
    for (i, device) in mig.iter().enumerate() {
        let parts = ["used", "driver_reserved", "free"].map(|part| device[part].as_u64().unwrap());
        assert_eq!((device["index"].as_u64(), parts[0]), (Some(i as u64), 1 << 30));
        assert_eq!(parts.iter().sum::<u64>(), device["total"].as_u64().unwrap());
        assert!(device["uuid"].as_str().unwrap().starts_with("MIG-"));
    }
    assert_eq!(document["devices"][0]["unavailable"]["utilization"], "not supported");
}

#[test]
fn figures_that_a_gpu_lacks_are_null_with_a_reason() {
    let world = World::with_nvml("gpu0.used=4G;gpu0.sensors=not_supported;gpu0.processes=no_permission");
    let (code, document) = json(&world);
    let device = &document["devices"][0];
    let figures = [
        "utilization",
        "memory_utilization",
        "temperature_celsius",
        "power_watts",
        "power_limit_watts",
        "pcie_host_to_device_bytes_per_second",
        "pcie_device_to_host_bytes_per_second",
    ];
    for figure in figures {
        assert_eq!(
            (&device[figure], &device["unavailable"][figure]),
            (&Value::Null, &"not supported".into()),
            "{figure}"
        );
    }
    assert_eq!((code, device["memory"]["other"].as_u64()), (0, Some(4 << 30)));
    let mut terminal = Terminal::start(&world, &[], 120, 40);
    terminal.wait_for(&["4.0 of 79.6 GiB used"]);
    let text = terminal.text();
    assert!(
        !text.contains("0°") && !text.contains(" 0 W") && !text.contains(" 0%"),
        "{text}"
    );
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));

    let world = World::with_nvml("gpu0.memory=no_permission");
    let (code, document) = json(&world);
    let device = &document["devices"][0];
    assert_eq!((code, &device["memory"]), (0, &Value::Null), "{device}");
    assert_eq!(device["unavailable"]["memory"], "no permission");
}

/// The driver stops answering altogether. The publishers' figures are still updated, and keys still work.
#[test]
fn a_driver_that_hangs_holds_up_only_its_own_figures() {
    for (before, then) in [
        (Some("gpu0.used=4G"), "gpu0.used=4G;gpu0.memory_delay_ms=600000"),
        (None, "init_delay_ms=600000"),
    ] {
        let world = World::with_nvml(before.unwrap_or(then));
        let demo = Background::training(&world);
        let mut terminal = Terminal::start(&world, &["--interval", "100ms"], 120, 40);
        let row = |screen: &str| {
            let pid = demo.pid().to_string();
            let line = screen
                .lines()
                .find(|line| line.contains(&pid) && line.contains("publishing"));
            line.map(str::to_owned)
        };
        terminal.wait("the publisher", |screen| row(screen).is_some());
        if before.is_some() {
            terminal.wait_for(&["4.0 of 79.6 GiB used"]);
            world.play(then);
            terminal.wait_for(&["NVML answered 3.0 s ago"]);
        }
        let old = row(&terminal.text());
        terminal.wait("other figures of the publisher", |screen| {
            row(screen).is_some_and(|row| Some(row) != old)
        });
        terminal.keys("3");
        terminal.wait_for(&["last 60 s"]);
        terminal.keys("q");
        assert_eq!(terminal.ended(), Ended::Code(0));
    }
}

/// The dynamic loader's lock is held then, and a normal exit would wait for it.
#[test]
fn a_driver_that_hangs_while_loading_does_not_delay_quitting() {
    let world = World::with_nvml("load_delay_ms=600000");
    let mut terminal = Terminal::start(&world, &[], 80, 24);
    terminal.wait_for(&["1 Overview"]);
    terminal.keys("3");
    terminal.wait_for(&["+ - span"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn reports_do_not_wait_for_a_driver_that_hangs() {
    // Initialisation hangs, or loading does, which would also hold up a normal exit.
    let worlds =
        ["init_delay_ms", "load_delay_ms"].map(|what| World::with_nvml(&format!("gpu0.used=4G;{what}=600000")));
    let reports = [("--json", 3), ("--once", 3), ("doctor", 1)];
    let began = Instant::now();
    let start = |world: &World| {
        reports.map(|(arg, code)| {
            let mut command = world.command(&[arg]);
            let report = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            (arg, code, report)
        })
    };
    for (arg, code, report) in worlds.each_ref().map(start).into_iter().flatten() {
        let Output { status, stdout, stderr } = report.wait_with_output().unwrap();
        let said = String::from_utf8([stdout, stderr].concat()).unwrap();
        assert_eq!(status.code(), Some(code), "{arg}: {said}");
        assert!(said.contains("no answer within 15 s"), "{arg}: {said}");
        assert!(
            began.elapsed() < Duration::from_secs(25),
            "{arg}: {:?}",
            began.elapsed()
        );
    }
}
