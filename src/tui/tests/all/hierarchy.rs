//! The Hierarchy view: kept figures, the example, and a measurement that fails.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use gpumem_demo::bench::hierarchy::example;
use gpumem_tests::{Ended, Terminal, World};

const CARD: &str = "GPU-66616b65-2d63-7564-612d-757569640000";

/// A cache folder with a report of the card, and one that is no report.
fn cache(folder: &Path) {
    let kept = folder.join("gpumem");
    std::fs::DirBuilder::new().mode(0o700).create(&kept).unwrap();
    let mut report = example();
    report.card.uuid = CARD.into();
    report.card.name = "Kept card".into();
    report.card.driver = "570.1".into();
    let text = serde_json::to_string(&report).unwrap();
    std::fs::write(kept.join(format!("hierarchy-{CARD}-570.1.json")), text).unwrap();
    std::fs::write(kept.join("hierarchy-broken.json"), "{\"schema\":").unwrap();
}

fn showing(world: &World, environment: &[(&str, &str)]) -> Terminal {
    let mut terminal = Terminal::start_with(world, &[], 120, 40, environment);
    terminal.wait_for(&["Processes"]);
    terminal.keys("4");
    terminal.wait_for(&["registers", "Latency by working set"]);
    terminal
}

#[test]
fn kept_figures_of_the_card_are_shown() {
    let cached = tempfile::tempdir().unwrap();
    cache(cached.path());
    let world = World::with_nvml(&format!("gpus=1;gpu0.uuid={CARD}"));
    let environment = [("XDG_CACHE_HOME", cached.path().to_str().unwrap())];
    let mut terminal = showing(&world, &environment);
    terminal.wait_for(&["Kept card", "with driver 570.1: r measures again"]);
    assert!(!terminal.text().contains("EXAMPLE"));
    terminal.keys("j");
    terminal.wait_for(&["A kernel places here"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn without_figures_an_example_is_shown_and_labelled() {
    let cached = tempfile::tempdir().unwrap();
    let environment = [("XDG_CACHE_HOME", cached.path().to_str().unwrap())];
    let world = World::without_gpu();
    let mut terminal = showing(&world, &environment);
    terminal.wait_for(&["NVIDIA H200", "EXAMPLE", "not measured here"]);
    terminal.keys("r");
    terminal.wait_for(&["no GPU here to measure"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

/// The driver has the card, but takes no kernels.
#[test]
fn measurement_that_fails_says_why_and_leaves_no_child() {
    let (cached, driver) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    gpumem_fake_cuda::install(driver.path()).unwrap();
    let used = format!("gpus=1;gpu0.uuid={CARD};gpu0.used=2G;gpu0.process=1:1G:compute");
    let world = World::with_nvml(&used);
    let environment = [
        ("XDG_CACHE_HOME", cached.path().to_str().unwrap()),
        ("LD_LIBRARY_PATH", driver.path().to_str().unwrap()),
    ];
    let mut terminal = showing(&world, &environment);
    terminal.keys("r");
    terminal.wait_for(&["1 program uses GPU 0", "Enter measures"]);
    terminal.keys("\r");
    terminal.wait_for(&["measuring: ", "loading a kernel"]);
    assert!(terminal.children().is_empty(), "{:?}", terminal.children());
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}
