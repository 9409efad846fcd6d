//! The header in the hands of a C compiler, where there is one: the rest of the tests needs none.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpumem_snapshot::Snapshot;
use gpumem_tests::{World, said};

/// Runs the C compiler on the program; `None`, and a word about it, where there is none, or none that has C's own headers.
fn compile(arguments: &[&str]) -> Option<Output> {
    compile_with(("cc", "c", "stdio.h"), "program.c", arguments)
}

/// The same for any file beside this one, by a compiler for a language that is known by a header.
fn compile_with((compiler, language, header): (&str, &str, &str), file: &str, arguments: &[&str]) -> Option<Output> {
    let probe = ["-fsyntax-only", "-include", header, "-x", language, "/dev/null"];
    if !Command::new(compiler)
        .args(probe)
        .output()
        .is_ok_and(|probe| probe.status.success())
    {
        eprintln!("SKIPPED: there is no compiler for {language}");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"];
    let made = Command::new(compiler)
        .args(strict)
        .arg(root.join("../src/alloc/c/include"))
        .args(arguments)
        .arg(root.join("tests/c_abi").join(file))
        .output();
    Some(made.unwrap())
}

/// Compiles a file twice: into a shared object that its program loads, whose path is its argument, and into the program, which must
/// succeed.
#[track_caller]
fn succeeds_with(compiler: (&str, &str, &str), file: &str, object: &str) {
    let folder = tempfile::tempdir().unwrap();
    let [program, object] = ["program", object].map(|name| folder.path().join(name));
    let library: PathBuf = gpumem_tests::libgpumem_alloc();
    let linked = format!("-Wl,--no-as-needed,{}", library.display());
    let shared = ["-shared", "-fPIC", "-DLIBRARY", "-o", object.to_str().unwrap(), &linked];
    let whole = ["-pthread", "-o", program.to_str().unwrap(), &linked, "-ldl"];
    for arguments in [&shared[..], &whole] {
        let Some(compiled) = compile_with(compiler, file, arguments) else {
            return;
        };
        succeeded(&compiled);
    }
    gpumem_fake_cuda::install(folder.path()).unwrap();
    let found = std::env::join_paths([folder.path(), library.parent().unwrap()]).unwrap();
    let ran = Command::new(&program)
        .arg(&object)
        .env("LD_LIBRARY_PATH", found)
        .envs(World::without_gpu().environment())
        .output()
        .unwrap();
    succeeded(&ran);
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

/// There a function hides a struct of its name, which C keeps apart.
#[test]
fn it_is_a_header_for_cpp_too() {
    let arguments = ["-std=c++17", "-Wshadow", "-fsyntax-only"];
    if let Some(compiled) = compile_with(("c++", "c++", "cstdio"), "figures.cpp", &arguments) {
        succeeded(&compiled);
    }
}

/// An exception of another language passes, on threads that are about to end, too.
#[test]
fn a_failure_is_thrown_as_pytorch_throws() {
    succeeds_with(("c++", "c++", "stdexcept"), "torch.cpp", "libc10.so");
}

/// In the place of what refuses, and of nothing else.
#[test]
fn what_pytorch_refuses_in_cpp_is_answered() {
    succeeds_with(("c++", "c++", "stdexcept"), "adopt.cpp", "libtorch_cuda.so");
}

/// Stitched or in one piece, by a process that knows it by a handle only.
#[test]
fn what_pytorchs_processes_share_is_the_same_memory() {
    succeeds_with(("c++", "c++", "stdexcept"), "sharing.cpp", "libtorch_cuda.so");
}

/// PyTorch tells nobody that a capture has failed.
#[test]
fn what_a_failed_capture_leaves_is_nobodys() {
    succeeds_with(("c++", "c++", "functional"), "graphs.cpp", "libtorch_cuda.so");
}

/// Who has the dynamic loader and who makes the first allocation do not wait for each other.
#[test]
fn a_librarys_constructor_allocates_while_another_thread_does_so_first() {
    succeeds_with(("cc", "c", "stdio.h"), "constructor.c", "plugin.so");
}
