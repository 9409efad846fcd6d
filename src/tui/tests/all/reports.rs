//! Reports of the real program and their exit codes, without a GPU and without a terminal.

use std::process::{Output, Stdio};

use gpumem_tests::{World, said as text};
use serde_json::{Value, json};

fn run(world: &World, args: &[&str]) -> Output {
    world.command(args).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// A shell's glob may pass any file name, and the environment may name any directory.
#[test]
fn names_are_cleaned_before_they_reach_the_terminal() {
    const HOSTILE: &str = "x\x1b]0;title\x07\u{9b}2J\u{202e}";
    let world = World::without_gpu();
    let trace = world.channels().join("trace.csv");
    std::fs::write(&trace, "op,id,bytes,stream\na,1,512,0\n").unwrap();
    let trace = trace.to_str().unwrap();
    for (args, dir, expected) in [
        (&["replay", trace, HOSTILE][..], "", 2),
        (&[HOSTILE], "", 2),
        (&["--device", HOSTILE], "", 2),
        (&["doctor"], HOSTILE, 1),
        (&["replay", trace, "--device", "sim"], HOSTILE, 0),
    ] {
        let output = world
            .command(args)
            .env("GPUMEM_DIR", world.channels().join(dir).join(dir))
            .output()
            .unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(code(&output), expected, "{args:?}: {said}");
        assert!(said.contains("x\u{fffd}]0;title"), "{args:?}: {said:?}");
        let raw = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!said.contains(raw), "{args:?}: {said:?}");
    }
}

#[test]
fn a_dashboard_without_a_terminal_names_the_alternatives() {
    for world in [World::without_gpu(), World::with_nvml("h100")] {
        let output = run(&world, &[]);
        assert_eq!(code(&output), 2);
        assert!(output.stdout.is_empty(), "nothing was drawn into the pipe");
        let complaint = text(&output.stderr);
        assert!(
            complaint.contains("--once") && complaint.contains("--json"),
            "{complaint}"
        );
        assert_eq!(complaint.trim_end().lines().count(), 1, "{complaint}");
        let output = run(&world, &["demo", "train"]);
        assert_eq!(code(&output), 2);
        assert!(text(&output.stderr).contains("--headless"));
    }
}

#[test]
fn a_demo_that_would_not_publish_is_refused_with_a_reason() {
    let world = World::without_gpu();
    for (args, expected) in [
        (&["--once", "--device", "sim"][..], 3),
        (&["--json", "--device", "sim"], 3),
        (&["--device", "sim"], 2),
        (&["demo", "train", "--device", "sim"], 2),
    ] {
        let mut command = world.command(args);
        let output = command.env("GPUMEM_ALLOC_CONF", "publish:off").output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains("publish:off"), "{args:?}: {said}");
        assert_eq!(code(&output), expected, "{args:?}: {said}");
    }
    let output = run(
        &world,
        &["demo", "fragmentation", "--device", "sim", "--conf", "publish:off"],
    );
    let said = text(&output.stderr);
    assert!(code(&output) == 2 && said.contains("leave publish:off out"), "{said}");
}

#[test]
fn without_a_gpu_reports_fail_and_never_simulate() {
    let world = World::without_gpu();
    let output = run(&world, &["--once"]);
    assert_eq!(code(&output), 3);
    assert!(output.stdout.is_empty());
    assert!(text(&output.stderr).contains("doctor"), "{}", text(&output.stderr));
    let output = run(&world, &["--json"]);
    assert_eq!(code(&output), 3);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "gpumem/1");
    assert_eq!(document["nvml"]["state"], "missing");
    assert_eq!(document["devices"], json!([]));
}

#[test]
fn a_simulated_report_is_labelled_and_adds_up() {
    let world = World::without_gpu();
    let output = run(&world, &["--json", "--device", "sim"]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["simulated"], true);
    let device = &document["devices"][0];
    assert_eq!(device["kind"], "simulated");
    let memory = |field: &str| device["memory"][field].as_u64().unwrap();
    assert!(memory("allocated") > 0);
    assert_eq!(
        memory("allocated") + memory("cached") + memory("not_published"),
        memory("total")
    );
    let process = &document["processes"][0];
    let figure = |field: &str| process["allocator"][field].as_u64().unwrap();
    assert_eq!(figure("reserved"), figure("allocated") + figure("cached"));
    assert!(
        process["nvml"].is_null() && process["unavailable"]["nvml"].is_string(),
        "null, with a reason"
    );
    let output = run(&world, &["--once", "--device", "sim"]);
    assert_eq!(code(&output), 0);
    assert!(text(&output.stdout).contains("SIMULATED"), "{}", text(&output.stdout));
}

#[test]
fn a_pipe_that_is_closed_early_is_no_failure() {
    let world = World::without_gpu();
    let mut child = world
        .command(&["--help"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut child = world
        .command(&["demo"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), text(&output.stderr)), (0, String::new()));
}

#[test]
fn the_demos_are_listed() {
    let world = World::without_gpu();
    let output = run(&world, &["demo"]);
    assert_eq!(code(&output), 0);
    for demo in gpumem_demo::list() {
        assert!(text(&output.stdout).contains(demo.name), "{}", demo.name);
    }
}

#[test]
fn doctor_says_what_is_missing_and_what_to_do() {
    let world = World::without_gpu();
    let output = run(&world, &["doctor"]);
    let said = text(&output.stdout);
    assert!(said.contains("NVML") && said.contains("GPUMEM_NVML"), "{said}");
    assert!(
        said.contains(&world.channels().display().to_string()),
        "where channels are: {said}"
    );
    assert!([1, 3].contains(&code(&output)), "no NVML here: {said}");
    assert!(
        said.contains("GPUMEM_NVML names it") && !said.contains("GPUMEM_NVML names another"),
        "it does already: {said}"
    );
    let once = text(&run(&world, &["--once"]).stderr);
    assert!(
        once.contains("absent.so (GPUMEM_NVML names it) and no program"),
        "{once}"
    );
}

#[test]
fn help_documents_exit_codes_and_environment() {
    let world = World::without_gpu();
    let said = text(&run(&world, &["--help"]).stdout);
    for word in [
        "Exit codes",
        "128 + n",
        "NO_COLOR",
        "COLORTERM",
        "TERM",
        "GPUMEM_DIR",
        "GPUMEM_NVML",
    ] {
        assert!(said.contains(word), "{word}");
    }
    assert!(said.lines().all(|line| line.len() <= 100), "it is wrapped: {said}");
    let (_, tables) = said.split_once("Keys:").unwrap();
    assert!(tables.lines().all(|line| line.len() <= 60), "tables are not: {said}");
    assert_eq!(code(&run(&world, &["--version"])), 0);
}
