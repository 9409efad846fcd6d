//! Publishers in containers, which have other mounts and other process ids. Root finds them from outside.

use std::process::Command;

use gpumem_tests::{Background, Ended, Terminal, World, unshared, until};
use serde_json::Value;

/// Sets up a container with its own process ids and its own tmpfs. One of its processes sees that tmpfs through a mount namespace of
/// its own.
const CONTAINER: &str =
    "mount -t proc none /proc && mount -t tmpfs -o mode=1777 none /dev/shm && { unshare -m sleep 600 & }";

/// Returns a command that looks for channels in the default places, not in the test's own folder.
fn outside(world: &World, args: &[&str]) -> Command {
    let mut command = world.command(args);
    command.env_remove("GPUMEM_DIR").env_remove("XDG_RUNTIME_DIR");
    command
}

/// Returns the rows of one process. Other programs on this machine may have rows too.
fn rows(world: &World, pid: u32) -> Vec<Value> {
    let output = outside(world, &["--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = document["processes"].as_array().unwrap().iter();
    rows.filter(|row| row["pid"] == pid).cloned().collect()
}

#[test]
fn a_publisher_in_a_container_is_found_once_by_its_host_pid() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root looks into containers");
        return;
    }
    let world = World::with_nvml("gpu0.used=4G");
    let command = outside(&world, &Background::FRAGMENTED);
    let Some(command) = unshared(&["-mpf", "--kill-child"], CONTAINER, &command) else {
        return;
    };
    let (mut container, says) = Background::run_fragmented(command);
    let [pid] = container.children()[..] else {
        unreachable!("one child: {:?}", container.children())
    };
    let found = rows(&world, pid);
    assert_eq!(found.len(), 1, "once, however many mounts show it: {found:?}");
    // Inside the container it is process 1.
    let row = &found[0];
    assert_eq!(row["state"], "publishing");
    assert!(row["command"].as_str().unwrap().contains("demo fragmentation"), "{row}");
    assert_eq!(row["allocator"]["cached"], says["cached"]);

    let text = pid.to_string();
    let mut terminal = Terminal::start_with(
        &world,
        &["--filter", &text],
        120,
        40,
        &[("GPUMEM_DIR", ""), ("XDG_RUNTIME_DIR", "")],
    );
    terminal.wait("its row", |screen| {
        screen
            .lines()
            .any(|line| line.contains(&text) && line.contains("publishing"))
    });
    container.kill();
    // Its tmpfs goes with it, and so does the black box.
    until("the channel is gone", || rows(&world, pid).is_empty());
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

/// Creates more directories, files and channel names than an earlier version of the scan looked at.
const JUNK: &str = "cd /dev/shm && seq -f other%.0f 4200 | xargs mkdir && mkdir -m 700 gpumem-0 && cd gpumem-0 && \
    seq -f junk%.0f 4200 | xargs touch && seq -f 1-%.0f-0.gpumem 4200 | xargs touch";

#[test]
fn junk_in_a_container_hides_no_publisher_and_is_reported() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root looks into containers");
        return;
    }
    let world = World::with_nvml("gpu0.used=4G");
    let command = outside(&world, &Background::FRAGMENTED);
    let setup = format!("{CONTAINER} && {JUNK}");
    let Some(command) = unshared(&["-mpf", "--kill-child"], &setup, &command) else {
        return;
    };
    let (container, _) = Background::run_fragmented(command);
    let [pid] = container.children()[..] else {
        unreachable!("one child: {:?}", container.children())
    };
    let document = outside(&world, &["--json"]).output().unwrap().stdout;
    let document: Value = serde_json::from_slice(&document).unwrap();
    let rows = document["processes"].as_array().unwrap().iter();
    let states: Vec<_> = rows.filter(|row| row["pid"] == pid).map(|row| &row["state"]).collect();
    assert_eq!(states, ["publishing"]);
    let mut unseen = document["unreadable_channels"].as_array().unwrap().iter();
    assert!(unseen.any(|problem| problem["kind"] == "overflow"));
    let mut findings = document["findings"].as_array().unwrap().iter();
    let names_it = |finding: &Value| finding["text"].as_str().unwrap().contains("may not be shown");
    assert!(findings.any(names_it), "{}", document["findings"]);
    let doctor = outside(&world, &["doctor"]).output().unwrap();
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains("not searched in full:"), "{doctor}");
}
