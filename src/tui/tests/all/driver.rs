//! Every report says the same about the driver's library, about its answers, and about each device.

use std::process::Output;

use gpumem_tests::{Terminal, World, said};
use serde_json::Value;

/// Scenarios of the fake NVML, one for each state that a device was seen in.
const STATES: [&str; 17] = [
    "",
    "gpus=2;gpu1.state=lost",
    "gpus=2;gpu1.state=reset_required",
    "gpus=2;gpu1.state=no_permission",
    "gpus=2;gpu1.state=28",
    "gpus=2;gpu1.answers=lost",
    "gpus=2;gpu1.answers=unknown",
    "gpus=2;gpu1.memory=not_supported",
    "gpus=2;gpu1.memory=no_permission",
    "gpus=2;gpu1.memory=999",
    "gpus=2;gpu1.total=0;gpu1.reserved=0",
    "gpus=2;gpu1.used=18446744073709551615",
    "gpus=2;gpu1.sensors=not_supported",
    "gpus=2;gpu1.sensors=lost",
    "gpus=2;gpu1.processes=no_permission",
    "gpus=2;gpu1.mig=2;gpu1.whole_list=no_permission",
    "gpu0.name=NVIDIA GB10;gpu0.memory=not_supported",
];

fn run(world: &World, args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = world.command(args).output().unwrap();
    (status.code().unwrap(), said(&stdout), said(&stderr))
}

/// `doctor` once called a lost card `ok`.
#[test]
fn every_report_says_the_same_about_a_device() {
    let mut lost = 0;
    for scenario in STATES {
        let world = World::with_nvml(scenario);
        let (code, document, _) = run(&world, &["--json"]);
        let document: Value = serde_json::from_str(&document).unwrap();
        let (once_code, once, _) = run(&world, &["--once"]);
        let (_, doctor, _) = run(&world, &["doctor"]);
        assert_eq!((code, once_code), (0, 0), "{scenario}");
        let nvml = doctor.lines().find(|line| line.contains(" NVML ")).unwrap();
        for device in document["devices"].as_array().unwrap() {
            let label = device["label"].as_str().unwrap();
            let name = device["name"].as_str().unwrap_or_default();
            // The text after a label, up to the next device.
            let part = |text: &str, end: &str| -> String {
                let from = text
                    .find(&format!("{label} "))
                    .unwrap_or_else(|| panic!("{label}: {text}"));
                text[from..].split(end).next().unwrap().to_owned()
            };
            let in_once = part(&once, "\n\n");
            let reason = |field: &str| device["unavailable"][field].as_str().unwrap_or_default().to_owned();
            // `doctor` names a MIG device only if something is wrong with it.
            let of_gpu = device["part_of"].is_null();
            let texts = match of_gpu {
                true => vec![in_once, part(&format!("{nvml}, "), ", ")],
                false => vec![in_once],
            };
            for text in texts {
                let is_lost = device["state"] == "lost";
                lost += usize::from(is_lost);
                assert!(text.contains(name), "{scenario}: {text}");
                assert_eq!(text.contains("LOST"), is_lost, "{scenario}: {text}");
                assert!(
                    !is_lost || text.contains(&format!("LOST: {}", reason("state"))),
                    "{scenario}: {text}"
                );
                let none = device["memory"].is_null();
                let told = ["  memory: ", "(memory: ", "; memory: "]
                    .iter()
                    .any(|m| text.contains(m));
                assert_eq!(told, none, "{scenario}: {text}");
                assert!(
                    !none || text.contains(&format!("memory: {}", reason("memory"))),
                    "{scenario}: {text}"
                );
            }
        }
        let any_lost = document["devices"]
            .as_array()
            .unwrap()
            .iter()
            .any(|d| d["state"] == "lost");
        assert_eq!(nvml.starts_with("BAD"), any_lost, "{scenario}: {nvml}");
    }
    assert!(lost >= 8, "{lost}");
}

#[test]
fn every_report_says_the_same_about_a_failing_driver() {
    for (scenario, error) in [
        ("init=driver_not_loaded", "Driver Not Loaded"),
        ("init=version_mismatch", "Driver/library version mismatch"),
        ("init=77", "Unknown Error 77"),
        ("calls=driver_not_loaded", "Driver Not Loaded"),
        ("calls=reset_required", "GPU requires reset"),
    ] {
        let world = World::with_nvml(scenario);
        let (code, document, _) = run(&world, &["--json"]);
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(
            (code, &document["nvml"]["state"]),
            (3, &Value::from("failing")),
            "{scenario}"
        );
        assert_eq!(document["nvml"]["error"], error);
        let (code, _, once) = run(&world, &["--once"]);
        assert!(
            code == 3 && once.contains(&format!("NVML fails: {error}.")),
            "{scenario}: {once}"
        );
        let (code, doctor, _) = run(&world, &["doctor"]);
        assert!(
            code == 1 && doctor.contains(&format!("BAD  NVML         {error}")),
            "{scenario}: {doctor}"
        );
    }
}

/// `--device` with a card that fell off the bus once found nothing from the second sample on.
#[test]
fn device_still_selects_a_card_that_was_lost() {
    let world = World::with_nvml("gpus=2;gpu1.used=2G");
    let uuid = "GPU-6f5ae4c5-0000-4000-8000-000000000001";
    let mut terminal = Terminal::start(&world, &["--device", uuid, "--interval", "50ms"], 120, 40);
    terminal.wait_for(&["GPU 1", "2.0 of 79.6 GiB used"]);
    world.play("gpus=2;gpu1.answers=lost");
    terminal.wait_for(&["GPU 1 is lost: GPU is lost", "LOST, last known figures"]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    terminal.wait_for(&["NVIDIA H100 80GB HBM3", "LOST, last known figures", "last known"]);
    terminal.keys("q");
    terminal.ended();
}

/// The library is loaded again after 10 s. Its cards were once forgotten then.
#[test]
fn the_cards_of_a_driver_that_went_away_are_remembered() {
    let world = World::with_nvml("gpus=2;gpu1.used=2G");
    let mut terminal = Terminal::start(&world, &["--interval", "50ms"], 120, 40);
    terminal.wait_for(&["2.0 of 79.6 GiB used"]);
    world.play("calls=driver_not_loaded;init=version_mismatch");
    terminal.wait_for(&["NVML fails: Driver Not Loaded", "LOST, last known figures"]);
    terminal.wait_for(&[
        "NVML fails: Driver/library version mismatch",
        "GPU 1",
        "LOST, last known figures",
    ]);
    // The driver is back, without one of them.
    world.play("gpus=1");
    terminal.wait_for(&["GPU 1 is lost: no longer listed by the driver", "0.0 of 79.6 GiB used"]);
    terminal.keys("q");
    terminal.ended();
}

const WARNING: &str = "WARNING: You should always run with libnvidia-ml.so that is installed with your driver";

/// The stub's warning was once printed before the document, and across the screen.
#[test]
fn cudas_stub_is_named_and_never_called() {
    let world = World::without_gpu();
    let folder = tempfile::tempdir().unwrap();
    let stubs = folder.path().join("lib64/stubs");
    std::fs::create_dir_all(&stubs).unwrap();
    let stub = gpumem_fake_nvml::FakeNvml::install(&stubs, &format!("says={WARNING}")).unwrap();
    let environments = [
        [("GPUMEM_NVML", stub.path()), ("NOTHING", stub.path())],
        [("GPUMEM_NVML", std::path::Path::new("")), ("LD_LIBRARY_PATH", &stubs)],
    ];
    for environment in environments {
        let run = |args: &[&str]| -> (String, String) {
            let output = world.command(args).envs(environment).output().unwrap();
            (said(&output.stdout), said(&output.stderr))
        };
        let (document, _) = run(&["--json"]);
        let document: Value = serde_json::from_str(&document).unwrap();
        // The machine's own driver may be found after the stub.
        if document["nvml"]["state"] == "ok" {
            continue;
        }
        let error = document["nvml"]["error"].as_str().unwrap();
        assert!(error.contains("stubs/libnvidia-ml.so.1 is CUDA's stub"), "{error}");
        let (_, once) = run(&["--once"]);
        let (doctor, _) = run(&["doctor"]);
        for text in [once, doctor] {
            assert!(text.contains(error) && !text.contains("WARNING"), "{text}");
        }
        let text = |(name, path): (&'static str, &std::path::Path)| (name, path.to_str().unwrap().to_owned());
        let environment = environment.map(text);
        let environment: Vec<(&str, &str)> = environment
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let mut terminal = Terminal::start_with(&world, &[], 160, 40, &environment);
        terminal.wait_for(&["NVML fails:", "CUDA's stub"]);
        assert!(!said(&terminal.raw()).contains("WARNING"));
        terminal.keys("q");
        terminal.ended();
    }
}

#[test]
fn once_and_json_together_mean_json() {
    let world = World::with_nvml("");
    for args in [&["--once", "--json"][..], &["--json", "--once"]] {
        let (code, document, _) = run(&world, args);
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!((code, &document["schema"]), (0, &Value::from("gpumem/1")));
    }
}

/// A bug report can then say which build it is about.
#[test]
fn the_version_names_commit_and_target() {
    let (code, text, _) = run(&World::without_gpu(), &["--version"]);
    let rest = text
        .trim_end()
        .strip_prefix(&format!("gpumem-tui {} (commit ", env!("CARGO_PKG_VERSION")));
    let rest = rest
        .and_then(|rest| rest.strip_suffix(')'))
        .unwrap_or_else(|| panic!("{text}"));
    let (commit, target) = (
        rest.split([',', ' ']).next().unwrap(),
        rest.rsplit(", ").next().unwrap(),
    );
    let known = commit.len() == 12 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    assert!(code == 0 && (known || commit == "not"), "{text}");
    assert!(
        target.contains(std::env::consts::ARCH) && target.contains("linux"),
        "{text}"
    );
}
