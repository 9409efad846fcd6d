//! Where the programs under test are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The `gpumem-tui` built from this tree with the profile of the running test. Built on the first call, so that a test never runs
/// against an old binary; beside a `cargo test --workspace` that built it already this takes a moment.
pub fn gpumem_tui() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY
        .get_or_init(|| build("gpumem-tui", &[], "gpumem-tui", "release"))
        .clone()
}

/// The publisher that keeps a dashboard busy, an example of the channel's crate.
pub fn churn() -> PathBuf {
    build("gpumem-channel", &["--example", "churn"], "examples/churn", "release")
}

/// The allocator for C programs. In a release build with the profile that is made for it, in which it can throw.
pub fn libgpumem_alloc() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY
        .get_or_init(|| build("gpumem-alloc-c", &[], "libgpumem_alloc.so", "embed"))
        .clone()
}

/// Builds a file with the profile of the running test, or in a release build with that of this name. Where `GPUMEM_BIN` names a folder the
/// file was built already and is there: a machine with a GPU need not have cargo.
fn build(package: &str, target: &[&str], file: &str, release: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os("GPUMEM_BIN") {
        let file = Path::new(file).file_name().expect("a file has a name");
        return Path::new(&folder).join(file);
    }
    // <target>/<profile>/deps/<test>, or examples/<program>
    let test = std::env::current_exe().expect("the test's own path");
    let running = test
        .parent()
        .and_then(|deps| deps.parent())
        .expect("a test lies in target/<profile>/deps");
    let target_dir = running.parent().expect("a profile lies in the target folder");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    cargo.args(["build", "--quiet", "--locked", "--package", package]);
    cargo.args(target).arg("--target-dir").arg(target_dir);
    let binary = if running.ends_with("release") {
        cargo.args(["--profile", release]);
        target_dir.join(release).join(file)
    } else {
        running.join(file)
    };
    let status = cargo.status().expect("cargo runs");
    assert!(
        status.success() && binary.is_file(),
        "cannot build {}",
        binary.display()
    );
    binary
}
