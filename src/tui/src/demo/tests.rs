#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::*;
use crate::event::{Effect, Event, Key};
use crate::model::Model;
use crate::update::update;

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

/// A child whose name this program has never heard: what it says of itself is all that its keys depend on.
#[test]
fn a_demo_that_nobody_knows_is_steered_by_the_kind_that_it_says() {
    let says = |kind: &str| {
        let start = r#"{"schema":"gpumem-demo/1","demo":"zebra","type":"start","steps":0,"kind":"KIND"}"#;
        let step = r#"{"schema":"gpumem-demo/1","demo":"zebra","type":"step","step":1,"title":"one"}"#;
        // It answers what it hears.
        let heard = r#"{"schema":"gpumem-demo/1","demo":"zebra","type":"notice","message":"heard %s"}"#;
        let start = start.replace("KIND", kind);
        format!("echo '{start}'; echo '{step}'; while read line; do printf '{heard}\\n' \"$line\"; done")
    };
    for (kind, told) in [
        ("stepped", Some("next")),
        ("paced", Some("pause")),
        ("looping", None),
        ("unheard-of", None),
    ] {
        run(async {
            let mut child = shell(&says(kind));
            let mut model = Model::default();
            model.demo = Some(crate::model::Demo {
                name: "zebra".into(),
                ..crate::model::Demo::default()
            });
            for _ in ["spawned", "start", "step"] {
                let news = child.next().await;
                update(&mut model, 0, Event::Demo(news));
            }
            update(&mut model, 0, Event::Key(Key::Char('7')));
            let effects = update(&mut model, 0, Event::Key(Key::Char(' ')));
            let line = effects.into_iter().find_map(|effect| match effect {
                Effect::TellDemo(line) => Some(line),
                _ => None,
            });
            assert_eq!((line.as_deref(), model.paused()), (told, told.is_none()), "{kind}");
            if let Some(line) = line {
                child.tell(&line).await;
                assert_eq!(child.next().await, DemoEvent::Notice(format!("heard {line}")));
            }
            child.stop().await;
        });
    }
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
