//! `libgpumem_alloc.so` as C programs use it, on a fake driver.
//!
//! cudarc opens the driver by name, so its path must be set before the process starts: the outer tests run this binary again,
//! with the environment that an inner test needs.
#![allow(unsafe_code, reason = "it calls the library as C programs do")]

mod abi;
mod compiled;
mod context;
mod elf;
mod ends;
mod header;
mod history;
mod misuse;
mod peers;
mod pools;
mod random;
mod signals;
mod streams;
mod usage;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use abi::Abi;
use gpumem_tests::{World, said};

/// Where an inner test finds the library.
const LIBRARY: &str = "GPUMEM_TESTS_C_LIBRARY";

/// The library, in an inner test.
fn library() -> Option<Abi> {
    let path = std::env::var_os(LIBRARY).map(PathBuf::from)?;
    Some(Abi::load(&path))
}

/// Runs an inner test in a process of its own.
fn inner(world: &World, test: &str, environment: &[(&str, &str)]) -> Output {
    inner_with_stderr(world, test, environment, Stdio::piped())
}

fn inner_with_stderr(world: &World, test: &str, environment: &[(&str, &str)], stderr: Stdio) -> Output {
    let driver = tempfile::tempdir().unwrap();
    gpumem_fake_cuda::install(driver.path()).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("c_abi::{test}"), "--nocapture", "--test-threads=1"])
        .env("LD_LIBRARY_PATH", driver.path())
        .env(LIBRARY, gpumem_tests::libgpumem_alloc())
        .envs(world.environment())
        .envs(environment.iter().copied())
        .stderr(stderr)
        .output()
        .unwrap()
}

/// Runs an inner test that must pass; what it printed to stderr.
#[track_caller]
fn passes(test: &str, environment: &[(&str, &str)]) -> String {
    let output = inner(&World::without_gpu(), test, environment);
    let (stdout, stderr) = (said(&output.stdout), said(&output.stderr));
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{test}: {stdout}{stderr}"
    );
    stderr
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let library = elf::Elf::read(&gpumem_tests::libgpumem_alloc());
    let exported: BTreeSet<String> = library.exported().into_iter().collect();
    assert_eq!(header::functions(), exported);
    let tested: BTreeSet<String> = Abi::NAMES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(exported, tested, "a function that these tests do not call");
}

#[test]
fn the_library_loads_without_cuda() {
    let needed = elf::Elf::read(&gpumem_tests::libgpumem_alloc()).needed();
    assert!(needed.iter().any(|name| name.starts_with("libc.so")), "{needed:?}");
    assert!(!needed.iter().any(|name| name.contains("cu")), "{needed:?}");
}

/// Without it a program that was linked by path would look for it at that path.
#[test]
fn the_library_is_loaded_by_its_name() {
    let library = elf::Elf::read(&gpumem_tests::libgpumem_alloc());
    assert_eq!(library.soname().as_deref(), Some("libgpumem_alloc.so"));
}

/// The build command is said in the header and in the README; a profile that does not unwind would end programs.
#[test]
fn the_documented_build_command_names_the_unwinding_profile() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    for file in [
        "src/alloc/c/include/gpumem_alloc.h",
        "README.md",
        "src/alloc/c/build.rs",
    ] {
        assert!(
            read(file).contains("cargo build --profile embed -p gpumem-alloc-c"),
            "{file}"
        );
    }
    let manifest = read("Cargo.toml");
    let profile = manifest.split_once("[profile.embed]").unwrap().1;
    assert!(profile.split_once("\n\n").unwrap().0.contains("panic = \"unwind\""));
}

/// Returns the file of the Python package that knows the header.
fn python() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/python/gpumem/_c_abi.py");
    std::fs::read_to_string(file).unwrap()
}

/// What the Python package loads by name, and the structs that it spells out.
#[test]
fn the_python_package_knows_the_header() {
    let python = python();
    let quoted = |text: &str| -> Vec<String> { text.split('"').skip(1).step_by(2).map(str::to_owned).collect() };
    let (structs, functions) = python.split_once("\nFUNCTIONS:").unwrap();
    let functions: BTreeSet<String> = quoted(functions.split_once("\n)\n").unwrap().0).into_iter().collect();
    // The rest is for others to call: PyTorch and CuPy are given its addresses.
    let called = |name: &String| {
        let others = ["gpumem_init", "gpumem_reset"].contains(&name.as_str());
        !others && !["gpumem_torch_", "gpumem_cupy_"].iter().any(|of| name.starts_with(of))
    };
    let expected: BTreeSet<String> = header::functions().into_iter().filter(called).collect();
    assert_eq!(functions, expected);
    // Only the fields are in quotes of one character.
    let structs = structs.split_once("class Stat(").unwrap().1.replace("\"\"\"", "");
    let parts = [
        "gpumem_stat",
        "gpumem_pool_stats",
        "gpumem_device_stats",
        "gpumem_pool_id",
    ]
    .map(|name| {
        let fields = header::fields(name).into_iter();
        let mut names: Vec<String> = fields
            .map(|field| field.split('.').next().unwrap().to_owned())
            .collect();
        names.dedup();
        names
    });
    assert_eq!(quoted(&structs), parts.concat());
}

/// By its words the package tells too little memory, where programs make room and try again, from what that does not help against.
#[test]
fn the_python_package_knows_too_little_memory() {
    let python = python();
    let rule = python.split_once("    short = ").unwrap().1.lines().next().unwrap();
    let words: Vec<&str> = rule.split('"').skip(1).step_by(2).collect();
    passes("inner_has_too_little_memory", &[("WORDS", &words.join(","))]);
}

#[test]
fn inner_has_too_little_memory() {
    let Some(abi) = library() else { return };
    let words = std::env::var("WORDS").unwrap();
    let words: Vec<&str> = words.split(',').collect();
    let is_short = || {
        let error = abi.error().unwrap();
        words.iter().any(|words| error.contains(words))
    };
    let (device, none) = (0, std::ptr::null_mut());
    for bytes in [1 << 45, usize::MAX] {
        assert!(abi.alloc(bytes, device, none).is_null() && is_short());
        assert!(abi.cupy_malloc(none, bytes, device).is_null() && is_short());
    }
    assert!(abi.alloc(1, 77, none).is_null() && !is_short());
}

/// A stream of the driver's, in an inner test that allocated already.
fn driver_stream() -> abi::Ptr {
    let mut stream = std::ptr::null_mut();
    let code = driver(
        c"cuStreamCreate",
        |create: unsafe extern "C" fn(*mut abi::Ptr, u32) -> i32| {
            // SAFETY: writes one handle.
            unsafe { create(&mut stream, 1) }
        },
    );
    assert_eq!(code, 0);
    stream
}

fn destroy_driver_stream(stream: abi::Ptr) {
    let code = driver(
        c"cuStreamDestroy_v2",
        |destroy: unsafe extern "C" fn(abi::Ptr) -> i32| {
            // SAFETY: a stream of `driver_stream`.
            unsafe { destroy(stream) }
        },
    );
    assert_eq!(code, 0);
}

/// Makes a device's context the thread's current one.
fn use_device(device: i32) {
    let mut context = std::ptr::null_mut();
    let code = driver(
        c"cuDevicePrimaryCtxRetain",
        |retain: unsafe extern "C" fn(*mut abi::Ptr, i32) -> i32| {
            // SAFETY: writes one handle. What CUDA keeps for the process's life.
            unsafe { retain(&mut context, device) }
        },
    );
    assert_eq!(code, 0);
    let code = driver(c"cuCtxSetCurrent", |set: unsafe extern "C" fn(abi::Ptr) -> i32| {
        // SAFETY: the context of the device.
        unsafe { set(context) }
    });
    assert_eq!(code, 0);
}

/// The thread's current context.
fn current_context() -> abi::Ptr {
    let mut context = std::ptr::null_mut();
    let code = driver(
        c"cuCtxGetCurrent",
        |current: unsafe extern "C" fn(*mut abi::Ptr) -> i32| {
            // SAFETY: writes one pointer.
            unsafe { current(&mut context) }
        },
    );
    assert_eq!(code, 0);
    context
}

/// Calls a function of the driver that the library has loaded.
fn driver<F: Copy>(name: &std::ffi::CStr, call: impl FnOnce(F) -> i32) -> i32 {
    // SAFETY: the fake driver is loaded already; the callers above name the functions' types.
    unsafe {
        let library = libloading::Library::new("libcuda.so").unwrap();
        let code = call(*library.get(name.to_bytes_with_nul()).unwrap());
        std::mem::forget(library);
        code
    }
}
