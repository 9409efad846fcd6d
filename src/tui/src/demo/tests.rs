#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::*;
use crate::event::{Effect, Event, Key};
use crate::model::Model;
use crate::update::update;

/// Serializes the tests, since one of them kills every child.
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

/// Checks whether a process exists, even as a zombie.
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

/// The keys of a demo depend only on what it reports, not on its name.
#[test]
fn unknown_demo_is_steered_by_its_reported_kind() {
    let says = |kind: &str| {
        let start = r#"{"schema":"gpumem-demo/1","demo":"zebra","type":"start","steps":0,"kind":"KIND"}"#;
        let step = r#"{"schema":"gpumem-demo/1","demo":"zebra","type":"step","step":1,"title":"one"}"#;
        // It answers each line.
        let heard = r#"{"schema":"gpumem-demo/1","demo":"zebra","type":"notice","message":"heard %s"}"#;
        let start = start.replace("KIND", kind);
        format!("echo '{start}'; echo '{step}'; while read line; do printf '{heard}\\n' \"$line\"; done")
    };
    for (kind, key, command) in [
        ("stepped", Key::Enter, Some("next")),
        ("paced", Key::Char(' '), Some("pause")),
        ("looping", Key::Char(' '), None),
        ("unheard-of", Key::Char(' '), None),
    ] {
        run(async {
            let mut child = shell(&says(kind));
            let mut model = Model::default();
            model.demo = Some(crate::model::Demo {
                name: "zebra".into(),
                ..crate::model::Demo::default()
            });
            for _ in ["spawned", "start", "step"] {
                let event = child.next().await;
                update(&mut model, 0, Event::Demo(event));
            }
            update(&mut model, 0, Event::Key(Key::Char('7')));
            let effects = update(&mut model, 0, Event::Key(key));
            let line = effects.into_iter().find_map(|effect| match effect {
                Effect::SendToDemo(line) => Some(line),
                _ => None,
            });
            assert_eq!(
                (line.as_deref(), model.paused()),
                (command, command.is_none()),
                "{kind}"
            );
            if let Some(line) = line {
                child.send(&line).await;
                assert_eq!(child.next().await, DemoEvent::Notice(format!("heard {line}")));
            }
            child.stop().await;
        });
    }
}

#[test]
fn child_that_reads_its_input_ends_with_it() {
    run(async {
        let child = shell("cat");
        let (pid, begin) = (child.pid, Instant::now());
        child.stop().await;
        assert!(!is_there(pid));
        assert!(begin.elapsed() < GRACE, "it was not killed");
    });
}

#[test]
fn child_that_ignores_its_input_is_killed() {
    run(async {
        // It reads nothing, keeps its output open and ends only by SIGKILL.
        let mut child = shell("trap '' TERM HUP INT; echo; while :; do sleep 60; done");
        let (pid, begin) = (child.pid, Instant::now());
        assert!(matches!(child.next().await, DemoEvent::Spawned { .. }));
        child.stop().await;
        assert!(!is_there(pid));
        let took = begin.elapsed();
        assert!(took >= GRACE && took < GRACE + KILLED, "{took:?}");
    });
}

/// The panic hook has no runtime to wait with.
#[test]
fn panic_leaves_no_child_behind() {
    run(async {
        let child = shell("exec sleep 60");
        let pid = child.pid;
        assert!(is_there(pid));
        end_at_once();
        assert!(!is_there(pid), "not even a zombie");
    });
}

#[test]
fn stopped_child_is_resumed() {
    run(async {
        let mut child = shell("echo '{}'; kill -STOP $$; echo '{}'; cat");
        let stopped = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        // It was started, and its first line is not one of a demo.
        for _ in 0..2 {
            child.next().await;
        }
        while !stopped(child.pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        child.resume();
        assert!(matches!(child.next().await, DemoEvent::Failed(_)), "its second line");
        child.stop().await;
    });
}
