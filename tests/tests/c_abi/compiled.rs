//! The header in the hands of a C compiler, where there is one: the rest of the tests needs none.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpumem_snapshot::Snapshot;
use gpumem_tests::{World, said};

/// Runs the C compiler on the program; `None`, and a word about it, where there is none, or none that has C's own headers.
fn compile(arguments: &[&str]) -> Option<Output> {
    let probe = ["-fsyntax-only", "-include", "stdio.h", "-x", "c", "/dev/null"];
    if !Command::new("cc")
        .args(probe)
        .output()
        .is_ok_and(|probe| probe.status.success())
    {
        eprintln!("SKIPPED: there is no C compiler");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"];
    let made = Command::new("cc")
        .args(strict)
        .arg(root.join("../src/alloc/c/include"))
        .args(arguments)
        .arg(root.join("tests/c_abi/program.c"))
        .output();
    Some(made.unwrap())
}

#[track_caller]
fn succeeded(output: &Output) {
    let (stdout, stderr) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
}

#[test]
fn a_c_program_uses_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let [program, state] = ["program", "state.pickle"].map(|name| folder.path().join(name));
    let library: PathBuf = gpumem_tests::libgpumem_alloc();
    // The program's text comes last, and the linker looks for what it needs behind it.
    let linked = format!("-Wl,--no-as-needed,{}", library.display());
    let Some(compiled) = compile(&["-std=c99", "-o", program.to_str().unwrap(), &linked]) else {
        return;
    };
    succeeded(&compiled);
    gpumem_fake_cuda::install(folder.path()).unwrap();
    let found = std::env::join_paths([folder.path(), library.parent().unwrap()]).unwrap();
    let ran = Command::new(&program)
        .arg(&state)
        .env("LD_LIBRARY_PATH", found)
        .envs(World::without_gpu().environment())
        .output()
        .unwrap();
    succeeded(&ran);
    assert_eq!(said(&ran.stderr), "");
    let snapshot = Snapshot::read(&state).unwrap();
    let mut pools: Vec<_> = snapshot
        .segments
        .iter()
        .map(|segment| segment.segment_pool_id)
        .collect();
    pools.sort_unstable();
    pools.dedup();
    assert_eq!(pools, [(0, 0), (1, 0)]);
}

#[test]
fn it_is_a_header_for_later_standards_too() {
    for standard in ["-std=c11", "-std=c17"] {
        if let Some(compiled) = compile(&[standard, "-fsyntax-only"]) {
            succeeded(&compiled);
        }
    }
}
