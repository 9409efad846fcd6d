//! Tests of NVML's side of the crate, with a fake NVML.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::process::Command;

mod days;
mod nvml;

/// Set in the environment of a test that runs in a process of its own.
const ALONE: &str = "GPUMEM_PROBE_TEST_ALONE";

/// Runs a test that begins with [`is_alone`] in a process of its own, with this environment.
#[track_caller]
fn alone(test: &str, environment: &[(&str, &str)]) {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", test, "--nocapture"]);
    process.env(ALONE, "1").envs(environment.iter().copied());
    let output = process.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // The exit code is 0 for a name that no test has, too.
    assert!(output.status.success() && said.contains("1 passed"), "{test}: {said}");
}

/// Returns whether this process runs one test only.
fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}
