//! `GPUMEM_SNAPSHOT_ON_OOM`, in programs of their own: this one is run again with it.
#![allow(unsafe_code, reason = "setresuid has no safe interface")]
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use gpumem_alloc::device::{self, SimConfig};
use gpumem_alloc::{Allocator, Buffer, Config, Error, History, PoolConfig, Publish, Snapshot, Stream};

const VARIABLE: &str = "GPUMEM_SNAPSHOT_ON_OOM";
const MIB: usize = 1 << 20;

/// One with 64 MiB.
fn with_history() -> Allocator {
    let config = Config {
        budget: Some(64 << 20),
        publish: Publish::Off,
        ..Config::default()
    };
    let alloc = Allocator::new(device::sim(SimConfig::default()), config).unwrap();
    alloc.record_history(History::ON).unwrap();
    alloc
}

/// Runs out of memory twice, when it is told to.
#[test]
fn runs_out() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let alloc = with_history();
    let held: Buffer<u8> = alloc.alloc(40 * MIB, Stream::DEFAULT).unwrap();
    for _ in 0..2 {
        let fails = alloc.alloc::<u8>(40 * MIB, Stream::DEFAULT);
        assert!(matches!(fails, Err(Error::OutOfMemory(_))));
        assert!(matches!(
            alloc.alloc_raw(40 << 20, Stream::DEFAULT),
            Err(Error::OutOfMemory(_))
        ));
    }
    drop(held);
    assert!(alloc.alloc::<u8>(40 * MIB, Stream::DEFAULT).is_ok());
}

/// The same, once it has become the user altogether as which it runs: set-uid programs do that.
#[test]
fn becomes_who_it_runs_as_and_runs_out() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let user = rustix::process::geteuid().as_raw();
    // SAFETY: sets three numbers of the process's.
    assert_eq!(unsafe { libc::setresuid(user, user, user) }, 0);
    runs_out();
}

/// A tenant is refused, as may happen all day, and later memory runs out, when it is told to.
#[test]
fn a_tenant_and_then_all_run_out() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let alloc = with_history();
    let config = PoolConfig {
        budget: Some(4 << 20),
        ..PoolConfig::default()
    };
    let tenant = alloc.pool("tenant", config).unwrap();
    for _ in 0..2 {
        assert!(tenant.alloc::<u8>(8 * MIB, Stream::DEFAULT).is_err());
    }
    assert!(alloc.alloc::<u8>(80 * MIB, Stream::DEFAULT).is_err());
    assert!(tenant.alloc::<u8>(8 * MIB, Stream::DEFAULT).is_err());
}

fn run(test: &str, path: &Path) -> Output {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    program.env(VARIABLE, path).output().unwrap()
}

#[test]
fn a_snapshot_is_written_once_with_what_led_there() {
    let folder = tempfile::tempdir().unwrap();
    let output = run("runs_out", &folder.path().join("oom-%p.pickle"));
    assert!(output.status.success(), "{output:?}");
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(files.len(), 1);
    let name = files[0].file_name().into_string().unwrap();
    let pid = name.strip_prefix("oom-").unwrap().strip_suffix(".pickle").unwrap();
    assert!(pid.parse::<u32>().is_ok(), "{name}");
    let mode = files[0].metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "others do not read it");
    let snapshot = Snapshot::read(&files[0].path()).unwrap();
    assert_eq!(snapshot.check(), []);
    let last = snapshot.device_traces[0].last().unwrap();
    assert_eq!((last.action, last.size), (gpumem_snapshot::Action::Oom, 40 << 20));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches("wrote the snapshot").count(), 1, "{said}");
}

#[test]
fn a_refused_tenant_does_not_take_the_snapshot_of_what_comes_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("oom.json");
    let output = run("a_tenant_and_then_all_run_out", &path);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches("wrote the snapshot").count(), 2, "{said}");
    let snapshot = Snapshot::read(&path).unwrap();
    let last = snapshot.device_traces[0].last().unwrap();
    assert_eq!((last.action, last.size), (gpumem_snapshot::Action::Oom, 80 << 20));
}

#[test]
fn where_it_cannot_be_written_the_program_goes_on() {
    let output = run("runs_out", "/proc/nowhere/oom.pickle".as_ref());
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches(VARIABLE).count(), 1, "{said}");
}

/// Only root can make such a program; others learn nothing here.
#[test]
fn a_set_uid_program_writes_no_file_where_who_started_it_wants_one() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can make a set-uid program of root's");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let allow = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    allow(folder.path(), 0o755);
    let program = folder.path().join("program");
    // By another process: who forks here while a file is open for writing hands that on, and what is being written cannot be run.
    let copied = Command::new("cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let written = folder.path().join("oom.pickle");
    for (mode, test, written_then) in [
        (0o755, "runs_out", true),
        (0o755, "becomes_who_it_runs_as_and_runs_out", true),
        (0o4755, "runs_out", false),
        (0o4755, "becomes_who_it_runs_as_and_runs_out", false),
    ] {
        allow(&program, mode);
        allow(folder.path(), if mode == 0o755 { 0o777 } else { 0o755 });
        let mut program = Command::new(&program);
        program.args(["--exact", test, "--nocapture", "--test-threads=1"]);
        let output = program.env(VARIABLE, &written).uid(65534).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(written.exists(), written_then, "mode {mode:o}, {test}");
        let _ = std::fs::remove_file(&written);
    }
}
