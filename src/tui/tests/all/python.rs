//! The Python package, and `gpumem-tui run`, which starts it. The tests of the package are in `src/python/tests`; they run in every Python
//! from 3.9 on that is found, with stand-ins for torch and for the publisher process.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpumem_tests::{World, said};
use tempfile::TempDir;

/// Returns the names of Python programs, one of each version from 3.`least` on.
pub(super) fn pythons(least: u32) -> Vec<String> {
    let mut found = BTreeMap::new();
    let newer = (least..=15).map(|minor| format!("python3.{minor}"));
    for name in std::iter::once("python3".to_owned()).chain(newer) {
        if let Some(version) = version(&name, least) {
            found.entry(version).or_insert(name);
        }
    }
    if found.is_empty() {
        eprintln!("SKIPPED: there is no Python 3.{least}");
    }
    found.into_values().collect()
}

/// Returns the version of a Python, if that is 3.`least` or newer.
fn version(python: &str, least: u32) -> Option<String> {
    let ask = format!("import sys; print(sys.version_info[:2]); sys.exit(sys.version_info < (3, {least}))");
    let output = Command::new(python).args(["-c", &ask]).output().ok()?;
    output.status.success().then(|| said(&output.stdout))
}

/// Runs the tests of a Python module in every Python.
#[track_caller]
fn run_tests(module: &str) {
    run_tests_with(module, &[]);
}

/// The same with more in their environment.
#[track_caller]
fn run_tests_with(module: &str, environment: &[(&str, &Path)]) {
    for python in pythons(9) {
        let output = Command::new(&python)
            .args(["-m", "unittest", module])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tests"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .envs(environment.iter().copied())
            .output()
            .unwrap();
        assert!(output.status.success(), "{python}: {}", said(&output.stderr));
    }
}

#[test]
fn python_names_and_pace() {
    run_tests("test_units");
}

#[test]
fn python_publishes() {
    run_tests("test_publish");
}

#[test]
fn python_processes_and_their_ends() {
    run_tests("test_processes");
}

#[test]
fn python_maps_and_histories() {
    run_tests("test_history");
}

#[test]
fn python_out_of_memory() {
    run_tests("test_oom");
}

#[test]
fn python_programs_that_know_nothing() {
    run_tests("test_run");
}

#[test]
fn python_allocator() {
    let driver = tempfile::tempdir().unwrap();
    gpumem_fake_cuda::install(driver.path()).unwrap();
    let library = gpumem_tests::libgpumem_alloc();
    run_tests_with(
        "test_allocator",
        &[("GPUMEM_LIBRARY", &library), ("LD_LIBRARY_PATH", driver.path())],
    );
}

#[test]
fn python_wheel() {
    run_tests("test_wheel");
}

/// A folder for the user's cache.
struct Cache(TempDir);

impl Cache {
    fn new() -> Cache {
        Cache(tempfile::tempdir().unwrap())
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("cache/gpumem")
    }

    /// Runs a command by `gpumem-tui run`.
    fn run(&self, command: &[&str]) -> Output {
        World::without_gpu()
            .command(&[&["run"], command].concat())
            .env("XDG_CACHE_HOME", self.0.path().join("cache"))
            .env("PYTHONPATH", "/of/the/user")
            .output()
            .unwrap()
    }
}

/// Says what a shell sees of the command's environment.
const SHOW: [&str; 3] = [
    "sh",
    "-c",
    "echo $PYTHONPATH; echo $GPUMEM_RUN; test -x \"$GPUMEM_TUI\" && echo found",
];

#[test]
fn run_sets_the_environment_of_the_command() {
    let cache = Cache::new();
    let output = cache.run(&SHOW);
    assert_eq!(said(&output.stderr), "");
    let text = said(&output.stdout);
    let [path, run, found] = text.lines().collect::<Vec<_>>()[..] else {
        unreachable!("{text}")
    };
    let (first, rest) = path.split_once(':').unwrap();
    assert_eq!((rest, run, found), ("/of/the/user", "1", "found"));
    let first = Path::new(first);
    assert!(
        first.starts_with(cache.folder()) && first.join("sitecustomize.py").is_file(),
        "{path}"
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&cache.folder()), mode(first), mode(first.parent().unwrap())),
        (0o700, 0o700, 0o700)
    );
}

#[test]
fn run_is_replaced_by_the_command() {
    let cache = Cache::new();
    let code = |command: &[&str]| cache.run(command).status.code();
    assert_eq!(code(&["sh", "-c", "exit 37"]), Some(37));
    assert_eq!(code(&["--", "sh", "-c", "exit 38"]), Some(38));
    assert_eq!(code(&["sh", "-c", "kill -TERM $$"]), None);
    // The child of this test is the shell itself, so signals reach it.
    let child = World::without_gpu()
        .command(&["run", "sh", "-c", "echo $$"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    assert_eq!(said(&child.wait_with_output().unwrap().stdout), format!("{pid}\n"));
}

#[test]
fn run_says_what_cannot_be_run() {
    let cache = Cache::new();
    for (command, code, says) in [
        ("no-such-program", 127, "run: no-such-program: command not found"),
        ("/etc/passwd", 126, "run: cannot run /etc/passwd: Permission denied"),
        ("/", 126, "run: cannot run /: Permission denied"),
    ] {
        let output = cache.run(&[command]);
        assert_eq!(output.status.code(), Some(code), "{command}");
        assert!(said(&output.stderr).contains(says), "{}", said(&output.stderr));
    }
    assert_eq!(cache.run(&[]).status.code(), Some(2));
}

/// Python runs these files, so they must be ours at every start.
#[test]
fn run_repairs_its_files() {
    let cache = Cache::new();
    let path = |output: Output| PathBuf::from(said(&output.stdout).split(':').next().unwrap());
    let file = path(cache.run(&SHOW)).join("sitecustomize.py");
    let text = fs::read_to_string(&file).unwrap();
    for spoil in [
        |file: &Path| fs::write(file, "import os").unwrap(),
        |file: &Path| fs::remove_file(file).unwrap(),
        |file: &Path| fs::write(file, "").unwrap(),
    ] {
        spoil(&file);
        cache.run(&SHOW);
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}

#[test]
fn run_goes_on_without_publishing() {
    let cache = Cache::new();
    fs::create_dir_all(cache.folder()).unwrap();
    fs::set_permissions(cache.folder(), Permissions::from_mode(0o777)).unwrap();
    let output = cache.run(&SHOW);
    assert_eq!(said(&output.stdout), "/of/the/user\n\n");
    let complaint = said(&output.stderr);
    assert!(
        complaint.contains("runs without publishing") && complaint.contains("chmod go-w"),
        "{complaint}"
    );
}

/// The whole way without stand-ins for our parts: the program, its Python files and a Python.
#[test]
fn run_reaches_every_python() {
    let cache = Cache::new();
    let show = "import sys; print('_gpumem_run_hook' in sys.modules)";
    for python in pythons(9) {
        let output = cache.run(&[&python, "-c", show]);
        assert_eq!(
            (said(&output.stdout), said(&output.stderr)),
            ("True\n".into(), String::new()),
            "{python}"
        );
    }
}
