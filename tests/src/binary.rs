//! Paths of the programs and libraries under test. Cargo has built them by the time a test runs.
//!
//! If `GPUMEM_BIN` names a folder, they are there instead: a machine with a GPU need not have cargo.

use std::path::{Path, PathBuf};

/// Cargo's name for the program of the package whose integration test or benchmark runs.
const PROGRAM: &str = "CARGO_BIN_EXE_gpumem-tui";

/// Returns the path of the `gpumem-tui` under test.
///
/// # Panics
/// Outside of `gpumem-tui`'s own integration tests and benchmarks: cargo only tells those where it is.
pub fn gpumem_tui() -> PathBuf {
    elsewhere("gpumem-tui").unwrap_or_else(|| {
        let program = std::env::var_os(PROGRAM);
        PathBuf::from(program.expect("run by cargo as a test of gpumem-tui, or with GPUMEM_BIN"))
    })
}

/// Returns the path of the allocator's library for C programs.
///
/// # Panics
/// If the test's package does not depend on `gpumem-alloc-c`.
pub fn libgpumem_alloc() -> PathBuf {
    const FILE: &str = "libgpumem_alloc.so";
    elsewhere(FILE).unwrap_or_else(|| {
        // Cargo puts the libraries that a test depends on beside it.
        let test = std::env::current_exe().expect("the test's own path");
        let library = test.with_file_name(FILE);
        assert!(library.is_file(), "there is no {}", library.display());
        library
    })
}

/// Returns the path of a file in the folder that `GPUMEM_BIN` names.
fn elsewhere(file: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("GPUMEM_BIN")?;
    Some(Path::new(&folder).join(file))
}
