//! A program that has candle beside the allocator: both are built with one cudarc, of which candle wants the driver linked and the version
//! that is on the machine. Type-checked only: candle's kernels need CUDA's compiler, and to link the program takes its libraries.

use std::process::Command;

use crate::common::campaign;

#[test]
fn candle_and_the_allocator_agree_on_cudarc() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/candle/Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    // To compile candle takes minutes. That one set of versions suits both is told by the lock file alone.
    if campaign(10) < 10 {
        cargo.args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--manifest-path",
            program,
        ]);
    } else {
        cargo
            .args(["check", "--locked", "--manifest-path", program])
            .args(["--target-dir", concat!(env!("CARGO_TARGET_TMPDIR"), "/candle")])
            // As nvcc would say.
            .env("CUDARC_CUDA_VERSION", "12080");
    }
    let output = cargo.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{said}\nIf its Cargo.lock has to follow the allocator's dependencies: cargo update --workspace --manifest-path {program}"
    );
}
