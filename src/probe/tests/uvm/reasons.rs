//! The messages that say why a process is not watched.

use std::fs::{Permissions, remove_file, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use gpumem_probe::Target;

use crate::stage::{Process, Stage, copy_into, start_time, use_driver, why_off};

/// The id of a user without rights.
const NOBODY: u32 = 65_534;

fn why(stage: &Stage, target: Target) -> String {
    let mut watch = stage.watch();
    watch.set(&[target], None);
    let why = why_off(&mut watch, target);
    assert_eq!(watch.counters(target), None);
    assert_eq!(stage.fake.open_trackers().unwrap(), 0, "{why}");
    why
}

pub(crate) fn drivers() {
    let stage = Stage::new("");
    let target = stage.target();
    for version in ["610.10.02", "470.57.02"] {
        stage.fake.set_version(version).unwrap();
        assert_eq!(
            why(&stage, target.target()),
            format!("the interface of driver {version} is not known: it is of the series 515 to 595")
        );
    }
    remove_file(stage.root().join("proc/driver/nvidia/version")).unwrap();
    let missing = why(&stage, target.target());
    assert!(missing.contains("the NVIDIA kernel module is not loaded"), "{missing}");
    assert_eq!(stage.fake.requests().unwrap(), []);
}

pub(crate) fn processes() {
    let stage = Stage::new("");
    const NO_UVM: &str = "it has no managed memory: it does not have the driver's unified memory open";
    let idle = Process::start("as-idle", stage.root(), &[]);
    assert_eq!(why(&stage, idle.target()), NO_UVM);
    let other_descriptor = stage.target_with(&["0", "only-lifetime"]);
    assert_eq!(why(&stage, other_descriptor.target()), NO_UVM);
    // A pid that another process has now, and one that no process has.
    let mut target = stage.target();
    let mut earlier = target.target();
    earlier.start_time -= 1;
    assert_eq!(why(&stage, earlier), "the process has ended");
    let gone = target.target();
    target.kill();
    target.child.wait().unwrap();
    assert_eq!(why(&stage, gone), "the process has ended");
}

pub(crate) fn devices() {
    let stage = Stage::new("");
    let target = stage.target();
    remove_file(stage.fake.tools()).unwrap();
    let missing = {
        let mut watch = stage.watch();
        watch.set(&[target.target()], None);
        why_off(&mut watch, target.target())
    };
    assert!(
        missing.contains("is missing: nvidia-modprobe -u -c=0 makes it"),
        "{missing}"
    );
}

pub(crate) fn refusals() {
    for (scenario, expected) in [
        ("refuse 56 0x3", "the driver is busy (status 0x3)"),
        ("refuse 56 0x51", "the driver is out of memory (status 0x51)"),
        ("refuse 56 0x1b", "the descriptor is not of nvidia-uvm (status 0x1b)"),
        ("refuse 56 0x1f", "the driver refused (status 0x1f)"),
        ("silent 56", "the driver gave an unexpected answer (0x1, 0x1)"),
        ("refuse 60 0x1f", "the driver refused (status 0x1f)"),
        ("silent 60", "the driver refused (status 0xffffffff)"),
        ("fail 60 22", "Invalid argument (os error 22)"),
    ] {
        let stage = Stage::new(scenario);
        let target = stage.target();
        assert_eq!(why(&stage, target.target()), expected, "{scenario}");
    }
    for (scenario, expected) in [
        ("refuse 64 0x51", "the driver is out of memory (status 0x51)"),
        ("silent 64", "the driver refused (status 0xffffffff)"),
        ("refuse 58 0x1f", "the driver refused (status 0x1f)"),
    ] {
        let stage = Stage::new(scenario);
        let target = stage.target();
        let mut watch = stage.watch();
        watch.set(&[target.target()], Some(target.target()));
        crate::stage::until_on(&mut watch, target.target());
        crate::stage::run_until(&mut watch, scenario, |watch| match watch.events_state() {
            Some((_, gpumem_probe::Watching::Off(why))) => why == expected,
            _ => false,
        });
        assert_eq!(stage.fake.open_trackers().unwrap(), 1, "{scenario}");
    }
    // Events that come late are no error.
    let stage = Stage::new("fail 0x30000001 38\n0 event cpu_fault");
    let target = stage.target();
    let mut watch = stage.watch();
    watch.set(&[], Some(target.target()));
    crate::stage::run_until(&mut watch, "the event", |watch| {
        watch.events().is_some_and(|events| events.sums.cpu_faults == 1)
    });
}

pub(crate) fn other_users() {
    let stage = Stage::new("");
    const OTHER: &str = "it is another user's, or protected: run gpumem-tui as root (sudo), or in a container with --cap-add SYS_PTRACE";
    if !rustix::process::geteuid().is_root() {
        // The first process is root's.
        let first = Target {
            pid: 1,
            start_time: start_time(1),
        };
        assert_eq!(why(&stage, first), OTHER);
        return;
    }
    set_permissions(stage.root(), Permissions::from_mode(0o755)).unwrap();
    use_driver(stage.root(), Some(NOBODY));
    let target = stage.target();
    assert_eq!(why(&stage, target.target()), OTHER);

    // A process of the same user, and a device that this user may not open.
    set_permissions(stage.root().join("dev/nvidia-uvm"), Permissions::from_mode(0o666)).unwrap();
    set_permissions(stage.fake.tools(), Permissions::from_mode(0o600)).unwrap();
    let own = {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(copy_into(stage.root(), &std::env::current_exe().unwrap()));
        command.arg("as-target").arg(stage.root()).arg("0");
        command.uid(NOBODY).gid(NOBODY);
        Process::of(command)
    };
    let closed = why(&stage, own.target());
    assert!(
        closed.contains("nvidia-uvm-tools is closed to this user: run gpumem-tui as root"),
        "{closed}"
    );
}
