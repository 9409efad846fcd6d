//! A machine with GPUs, as a fake NVML plays it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Output;

use gpumem_tests::{Ended, Terminal, World};
use serde_json::Value;

/// Pids that no Linux gives out.
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
    let parts = ["allocated", "cached", "other", "driver_reserved", "free"];
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
        "nobody knows the driver's share: {memory}"
    );
    let why = memory["unavailable"]["driver_reserved"].as_str().unwrap();
    assert!(why.contains("host's memory"), "{why}");
    terminal.wait_for(&["uses the host's memory", "other and driver"]);
    let report = world.command(&["--once"]).output().unwrap().stdout;
    let report = String::from_utf8(report).unwrap();
    assert!(report.contains("  driver: the GPU uses the host's memory"), "{report}");
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
fn a_driver_that_fails_is_an_error_with_advice_and_never_a_simulation() {
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
        // A sample of the channels later there is still nothing but the error.
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
