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
        .arg(root.join("tests/all/c_abi").join(file))
        .output();
    Some(made.unwrap())
}

/// What was compiled: a program, and the shared objects that it loads, whose paths are its first arguments.
struct Compiled {
    folder: tempfile::TempDir,
    objects: Vec<PathBuf>,
}

impl Compiled {
    /// `None` where there is no compiler.
    #[track_caller]
    fn new(compiler: (&str, &str, &str), program: &str, objects: &[(&str, &str)]) -> Option<Compiled> {
        let folder = tempfile::tempdir().unwrap();
        let linked = format!("-Wl,--no-as-needed,{}", gpumem_tests::libgpumem_alloc().display());
        let path = |name: &str| folder.path().join(name).into_os_string().into_string().unwrap();
        // As with PyTorch's libraries, tables of one have the types of another.
        let whole = ["-pthread", "-rdynamic", "-o", &path("program"), &linked, "-ldl"];
        succeeded(&compile_with(compiler, program, &whole)?);
        for (file, object) in objects {
            let shared = ["-shared", "-fPIC", "-DLIBRARY", "-o", &path(object), &linked];
            succeeded(&compile_with(compiler, file, &shared)?);
        }
        gpumem_fake_cuda::install(folder.path()).unwrap();
        let objects = objects.iter().map(|(_, object)| folder.path().join(object)).collect();
        Some(Compiled { folder, objects })
    }

    /// What the program says to stderr, which must succeed.
    #[track_caller]
    fn says(&self, arguments: &[&str], environment: &[(&str, &str)]) -> String {
        let library = gpumem_tests::libgpumem_alloc();
        let found = std::env::join_paths([self.folder.path(), library.parent().unwrap()]).unwrap();
        let ran = Command::new(self.folder.path().join("program"))
            .args(&self.objects)
            .args(arguments)
            .env("LD_LIBRARY_PATH", found)
            .envs(World::without_gpu().environment())
            .envs(environment.iter().copied())
            .output()
            .unwrap();
        let (stdout, stderr) = (said(&ran.stdout), said(&ran.stderr));
        assert!(ran.status.success(), "{arguments:?} {environment:?}: {stdout}{stderr}");
        stderr
    }
}

/// Compiles a file twice: into a shared object that its program loads, and into the program, which must succeed.
#[track_caller]
fn succeeds_with(compiler: (&str, &str, &str), file: &str, object: &str) {
    if let Some(compiled) = Compiled::new(compiler, file, &[(file, object)]) {
        compiled.says(&[], &[]);
    }
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
    let compiler = ("c++", "c++", "functional");
    if let Some(compiled) = Compiled::new(compiler, "graphs.cpp", &[("graphs.cpp", "libtorch_cuda.so")]) {
        compiled.says(&[], &[("FAKE_CUDA_DEAD_STREAMS_KILL", "1")]);
    }
}

/// Of a version that was not tried nothing is taken for granted, and of one that was only what it has.
#[test]
fn layouts_of_pytorch_that_are_not_known_are_left_out() {
    let objects = [("adopt.cpp", "libtorch_cuda.so"), ("torch.cpp", "libc10.so")];
    let Some(compiled) = Compiled::new(("c++", "c++", "stdexcept"), "layouts.cpp", &objects) else {
        return;
    };
    let newer = ("FAKE_TORCH_MINOR", "16");
    let left_out = |version: &str, how: &str, environment: &[(&str, &str)]| {
        let stderr = compiled.says(&[how], environment);
        let lines: Vec<&str> = stderr.lines().filter(|line| line.contains("was not tried")).collect();
        let [line] = lines[..] else {
            panic!("one line: {stderr}");
        };
        assert!(
            line.starts_with(&format!("gpumem: PyTorch {version} was not tried")),
            "{line}"
        );
        assert!(line.ends_with("GPUMEM_TRUST_TORCH=1 turns it on"), "{line}");
    };
    left_out("2.16", "untried", &[newer]);
    left_out("2.16", "untried", &[newer, ("GPUMEM_TRUST_TORCH", "0")]);
    left_out("2.16.0.dev20261101+cu130", "told", &[]);
    left_out("2.14.0, whose libraries are of 2.11,", "other", &[]);
    let goes_on = |how: &str, environment: &[(&str, &str)]| {
        let stderr = compiled.says(&[how], environment);
        assert!(!stderr.contains("tried"), "{stderr}");
    };
    goes_on("trusted", &[newer, ("GPUMEM_TRUST_TORCH", "1")]);
    goes_on("tried", &[]);
    for how in [
        "odd size",
        "longer",
        "shorter",
        "without recordStream",
        "without checkpoints",
        "other filters",
        "other error",
    ] {
        goes_on(how, &[]);
    }
}

/// Who has the dynamic loader and who makes the first allocation do not wait for each other.
#[test]
fn a_constructor_allocates_beside_the_first_allocation() {
    succeeds_with(("cc", "c", "stdio.h"), "constructor.c", "plugin.so");
}
