//! `bench` without a usable GPU: it says why, ends with the exit codes of demos, and keeps no report.

use std::path::Path;
use std::process::{Command, Output};

use gpumem_demo::bench::protocol::{Body, Line, SCHEMA};
use gpumem_tests::{World, said};

/// Runs `bench hierarchy` with a cache folder of its own, which stays empty.
fn hierarchy(args: &[&str], settings: &[(&str, &str)]) -> Output {
    let world = World::without_gpu();
    let cache = tempfile::tempdir().unwrap();
    let mut command: Command = world.command(&[&["bench", "hierarchy"], args].concat());
    command.env("XDG_CACHE_HOME", cache.path());
    let output = command.envs(settings.iter().copied()).output().unwrap();
    assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 0, "nothing is kept");
    output
}

fn fake_cuda(args: &[&str], folder: &Path, init: &str) -> Output {
    let settings = [("LD_LIBRARY_PATH", folder.to_str().unwrap()), ("FAKE_CUDA_INIT", init)];
    hierarchy(args, &settings)
}

/// On a machine that has GPUs, this one is not among them.
#[test]
fn without_a_gpu_bench_hierarchy_says_it_needs_one() {
    for args in [
        &["--device", "99"][..],
        &["--device", "99", "--json"],
        &["--device", "cuda:99", "--no-save"],
    ] {
        let output = hierarchy(args, &[]);
        let complaint = said(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{complaint}");
        assert!(complaint.contains("measures a GPU and needs one"), "{complaint}");
        assert!(output.stdout.is_empty(), "{}", said(&output.stdout));
    }
}

#[test]
fn a_failing_driver_is_named() {
    let driver = tempfile::tempdir().unwrap();
    gpumem_fake_cuda::install(driver.path()).unwrap();
    let cases = [
        ("100", 3, "CUDA_ERROR_NO_DEVICE"),
        ("803", 3, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        ("0", 1, "loading a kernel (drivers from R525 on take it) failed"),
    ];
    for (init, code, expected) in cases {
        let output = fake_cuda(&["--json"], driver.path(), init);
        let complaint = said(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{complaint}");
        assert!(complaint.contains(expected), "{complaint}");
        assert!(output.stdout.is_empty(), "{}", said(&output.stdout));
    }
}

#[test]
fn a_steered_benchmark_reports_its_error_on_stdout() {
    let driver = tempfile::tempdir().unwrap();
    gpumem_fake_cuda::install(driver.path()).unwrap();
    let output = fake_cuda(&["--json", "--steer"], driver.path(), "100");
    assert_eq!(output.status.code(), Some(3), "{}", said(&output.stderr));
    let text = said(&output.stdout);
    let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [line] = lines.as_slice() else { panic!("{text}") };
    assert_eq!((line.schema.as_str(), line.bench.as_str()), (SCHEMA, "hierarchy"));
    match &line.body {
        Body::Error { message, exit_code } => {
            assert!(message.contains("CUDA_ERROR_NO_DEVICE"), "{message}");
            assert_eq!(*exit_code, 3);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn bad_arguments_of_a_benchmark_are_refused() {
    for args in [
        &["--device", "sim"][..],
        &["--device", "-1"],
        &["--budget", "-1G"],
        &["--steer"],
        &["--nonsense"],
    ] {
        let output = hierarchy(args, &[]);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output.stderr));
    }
}
