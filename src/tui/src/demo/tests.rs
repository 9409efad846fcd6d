#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::*;

/// One at a time: a panic ends every child there is.
static ALONE: Mutex<()> = Mutex::new(());

pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

pub(super) fn shell(script: &str) -> DemoChild {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    DemoChild::start(command).unwrap()
}

/// Whether anything of a process is left, be it a zombie.
pub(super) fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn arguments_of_one_demo_are_not_given_to_another() {
    let options = DemoOptions {
        shared: vec!["--budget".into(), "1G".into()],
        own: Some(("one".into(), vec!["--steps=3".into()])),
        ..DemoOptions::default()
    };
    let of = |name| options.arguments_of(name).collect::<Vec<_>>();
    assert_eq!(of("one"), ["--budget", "1G", "--steps=3"]);
    assert_eq!(of("another"), ["--budget", "1G"]);
}

#[test]
fn a_child_that_listens_ends_at_the_end_of_its_input() {
    run(async {
        let child = shell("cat");
        let (pid, begin) = (child.pid, Instant::now());
        child.stop().await;
        assert!(!is_there(pid));
        assert!(begin.elapsed() < GRACE, "it was not killed");
    });
}

#[test]
fn a_child_that_listens_to_nothing_is_killed_and_nothing_is_left_of_it() {
    run(async {
        // It reads nothing, keeps its output open and does not end by any signal but one.
        let mut child = shell("trap '' TERM HUP INT; echo; while :; do sleep 60; done");
        let (pid, begin) = (child.pid, Instant::now());
        assert!(matches!(child.next().await, DemoEvent::Spawned { .. }));
        child.stop().await;
        assert!(!is_there(pid));
        let took = begin.elapsed();
        assert!(took >= GRACE && took < GRACE + KILLED, "{took:?}");
    });
}

/// On its way out a panic has no runtime to wait with.
#[test]
fn a_panic_leaves_no_child_behind() {
    run(async {
        let child = shell("exec sleep 60");
        let pid = child.pid;
        assert!(is_there(pid));
        end_at_once();
        assert!(!is_there(pid), "not even a zombie");
    });
}

#[test]
fn a_child_that_was_stopped_goes_on() {
    run(async {
        let mut child = shell("echo '{}'; kill -STOP $$; echo '{}'; cat");
        let stopped = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        // It is started, and what it says is no line of a demo.
        for _ in 0..2 {
            child.next().await;
        }
        while !stopped(child.pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        child.go_on();
        assert!(matches!(child.next().await, DemoEvent::Failed(_)), "its second line");
        child.stop().await;
    });
}
