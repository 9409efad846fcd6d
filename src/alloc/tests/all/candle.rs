//! A program that has candle beside the allocator: both are built with one cudarc, of which candle wants the driver linked and the version
//! that is on the machine. Type-checked only: candle's kernels need CUDA's compiler, and to link the program takes its libraries.

use std::process::Command;

use crate::common::campaign;

#[test]
fn candle_and_the_allocator_agree_on_cudarc() {
    if campaign(10) < 10 {
        println!("SKIPPED: it compiles candle, which takes minutes: GPUMEM_FULL=1");
        return;
    }
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/candle/Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["check", "--locked", "--manifest-path", program])
        .args(["--target-dir", concat!(env!("CARGO_TARGET_TMPDIR"), "/candle")])
        // As nvcc would say.
        .env("CUDARC_CUDA_VERSION", "12080")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{said}\nIf its Cargo.lock has to follow the allocator's dependencies: cargo update --workspace --manifest-path {program}"
    );
}
