//! The tests of the crate, one module for each idea.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::process::Command;

mod days;
mod nvml;

/// Set in the process of a test that has one of its own.
const ALONE: &str = "GPUMEM_PROBE_TEST_ALONE";

/// Runs a test that begins with [`is_alone`] in a process of its own, and in this environment.
#[track_caller]
fn alone(test: &str, environment: &[(&str, &str)]) {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", test, "--nocapture"]);
    process.env(ALONE, "1").envs(environment.iter().copied());
    let output = process.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // A name that no test has is no failure.
    assert!(output.status.success() && said.contains("1 passed"), "{test}: {said}");
}

/// Whether this process is a test's own.
fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}
