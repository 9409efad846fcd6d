//! `bench claims` without a usable GPU: it checks what needs none, and says of the rest why it was not measured.

use std::process::Output;

use gpumem_demo::bench::claims::{Place, Report, SCHEMA, Verdict};
use gpumem_demo::bench::protocol::{Body, Line};
use gpumem_tests::{World, said};

fn claims(args: &[&str], settings: &[(&str, &str)]) -> Output {
    let world = World::without_gpu();
    let mut command = world.command(&[&["bench", "claims"], args].concat());
    command.envs(settings.iter().copied()).output().unwrap()
}

fn report(output: &Output) -> Report {
    assert_eq!(output.status.code(), Some(0), "{}", said(&output.stderr));
    serde_json::from_str(&said(&output.stdout)).unwrap()
}

fn reason<'a>(report: &'a Report, name: &str) -> Option<&'a str> {
    let row = report.rows.iter().find(|row| row.name == name).unwrap();
    match &row.verdict {
        Verdict::NotMeasured(reason) => Some(reason),
        _ => None,
    }
}

#[test]
fn simulated_device_checks_what_needs_no_gpu() {
    let report = report(&claims(&["--device", "sim", "--json"], &[]));
    assert_eq!(
        (report.schema.as_str(), report.card.is_some(), report.budget),
        (SCHEMA, false, 0)
    );
    assert!(report.rows.iter().all(|row| row.place == Place::Simulated));
    assert_eq!(reason(&report, "malloc-cost"), Some("needs a GPU"));
    for name in ["empty-cache", "checkpointing", "save", "expandable"] {
        assert_eq!(reason(&report, name), None, "{name}");
    }
}

#[test]
fn chosen_claims_are_explained() {
    let output = claims(&["--device", "sim", "--only", "adam", "--only", "in-place"], &[]);
    let text = said(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output.stderr));
    assert!(text.starts_with("SIMULATED"), "{text}");
    for words in ["in-place ", "adam ", "Adam keeps two more copies", "verdict  holds"] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert!(!text.contains("malloc-cost"), "{text}");
}

/// The fake driver has no kernels.
#[test]
fn driver_that_refuses_kernels_is_named() {
    let driver = tempfile::tempdir().unwrap();
    gpumem_fake_cuda::install(driver.path()).unwrap();
    let settings = [("LD_LIBRARY_PATH", driver.path().to_str().unwrap())];
    let output = claims(&["--device", "0", "--json"], &settings);
    let complaint = said(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    let expected = "loading a kernel (drivers from R525 on take it) failed";
    assert!(complaint.contains(expected), "{complaint}");
    assert!(output.stdout.is_empty(), "{}", said(&output.stdout));
}

#[test]
fn missing_gpu_is_never_simulated_for_programs() {
    let output = claims(&["--device", "99", "--json"], &[]);
    let complaint = said(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{complaint}");
    assert!(complaint.contains("checked with --device sim"), "{complaint}");
    assert!(output.stdout.is_empty(), "{}", said(&output.stdout));
}

#[test]
fn steered_run_ends_with_its_report() {
    let output = claims(&["--device", "sim", "--json", "--only", "adam"], &[]);
    assert_eq!(report(&output).rows.len(), 1);
    let world = World::without_gpu();
    let mut command = world.command(&[
        "bench", "claims", "--device", "sim", "--json", "--only", "adam", "--steer",
    ]);
    // Its stdin stays open until it has ended.
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    let text = said(&output.stdout);
    let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(matches!(lines.first().unwrap().body, Body::Start(_)), "{text}");
    assert!(matches!(lines.last().unwrap().body, Body::Claims { .. }), "{text}");
}

#[test]
fn bad_arguments_of_claims_are_refused() {
    for args in [
        &["--only", "nonsense"][..],
        &["--device", "gpu"],
        &["--budget", "-1G"],
        &["--steer"],
    ] {
        let output = claims(args, &[]);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output.stderr));
    }
}
