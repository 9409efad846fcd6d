//! The demo and its child process.

use gpumem_probe::NvmlState;

use super::sample::*;
use crate::event::{DemoEvent, Effect, Event, Key, Mouse, MouseAction};
use crate::model::*;

fn send(model: &mut Model, news: DemoEvent) -> Vec<Effect> {
    feed(model, [Event::Demo(news)])
}

fn running() -> Model {
    let mut model = busy();
    let effects = press(&mut model, &[Key::Char('7'), Key::Enter]);
    assert_eq!(
        effects[0],
        Effect::StartDemo {
            name: "fragmentation".into(),
            simulated: false
        }
    );
    let start = Demo {
        total_steps: 3,
        kind: Some(DemoKind::Stepped),
        simulated: true,
        device: "sim".into(),
        ..Demo::default()
    };
    send(&mut model, DemoEvent::Spawned { pid: 77 });
    send(&mut model, DemoEvent::Start(Box::new(start)));
    model
}

fn step(number: u64, choices: &[&str]) -> DemoEvent {
    let choices = choices
        .iter()
        .map(|name| Choice {
            name: (*name).into(),
            title: String::new(),
            default: *name == "remap",
        })
        .collect();
    DemoEvent::Step(
        Box::new(DemoStep {
            number,
            title: format!("step {number}"),
            ..DemoStep::default()
        }),
        choices,
    )
}

#[test]
fn stepped_demo_advances_and_takes_a_fix() {
    let mut model = running();
    assert_eq!(press(&mut model, &[Key::Enter])[0], Effect::SendToDemo("next".into()));
    assert_eq!(
        press(&mut model, &[Key::Char('f')]),
        [Effect::Draw],
        "nothing to fix yet"
    );
    assert!(model.ui.popup.is_none());
    send(&mut model, step(1, &["release", "remap"]));
    let effects = press(&mut model, &[Key::Char('f'), Key::Enter]);
    assert_eq!(effects[0], Effect::SendToDemo("fix remap".into()), "the default");
    assert!(model.demo.as_ref().unwrap().choices.is_empty(), "a fix is chosen once");
    let outcome = DemoOutcome {
        failed_before: Some(true),
        succeeded_after: Some(true),
        ..DemoOutcome::default()
    };
    send(&mut model, DemoEvent::Result { ok: true, outcome });
    send(&mut model, DemoEvent::Exited("exit code 0".into()));
    let demo = model.demo.as_ref().unwrap();
    assert_eq!(
        (&demo.phase, demo.pid, demo.steps.len()),
        (&DemoPhase::Done { ok: true }, None, 1)
    );
}

/// Looking back changes nothing on the device. The way forward goes through the steps that were seen, and then on.
#[test]
fn arrows_go_back_and_forth_between_steps() {
    let mut model = running();
    for number in 1..=3 {
        send(&mut model, step(number, &[]));
    }
    let shown = |model: &Model| {
        let demo = model.demo.as_ref().unwrap();
        demo.steps_up_to(model.ui.demo_back).last().unwrap().number
    };
    for (key, number) in [
        (Key::Left, 2),
        (Key::Char('h'), 1),
        (Key::Left, 1),
        (Key::Enter, 2),
        (Key::Home, 1),
        (Key::End, 3),
        (Key::Up, 2),
        (Key::Down, 3),
    ] {
        assert_eq!(press(&mut model, &[key]), [Effect::Draw], "{key:?}");
        assert_eq!(shown(&model), number, "{key:?}");
    }
    press(&mut model, &[Key::Left]);
    assert_eq!(press(&mut model, &[Key::Right]), [Effect::Draw]);
    assert_eq!(press(&mut model, &[Key::Right])[0], Effect::SendToDemo("next".into()));
    press(&mut model, &[Key::Left]);
    send(&mut model, step(4, &[]));
    assert_eq!(shown(&model), 4, "a new step is shown");
}

#[test]
fn last_step_stays_until_another_demo_is_started() {
    let mut model = running();
    send(&mut model, step(1, &[]));
    let outcome = DemoOutcome::default();
    send(&mut model, DemoEvent::Result { ok: true, outcome });
    send(&mut model, DemoEvent::Exited("exit code 0".into()));
    for key in [
        Key::Enter,
        Key::Right,
        Key::Down,
        Key::Char(' '),
        Key::Char(' '),
        Key::Left,
    ] {
        assert_eq!(press(&mut model, &[key]), [Effect::Draw], "{key:?}");
        let demo = model.demo.as_ref().unwrap();
        assert!(demo.over() && demo.steps.len() == 1 && !model.ui.demo_list, "{key:?}");
    }
    press(&mut model, &[Key::Char('x')]);
    assert!(model.ui.demo_list);
    press(&mut model, &[Key::Char('x')]);
    assert!(!model.ui.demo_list, "the last demo is shown again");
    let effects = press(&mut model, &[Key::Char('x'), Key::Enter]);
    assert!(matches!(effects[0], Effect::StartDemo { .. }), "{effects:?}");
    assert!(!model.ui.demo_list);
}

/// A step would not be seen.
#[test]
fn demo_does_not_go_on_while_paused() {
    let mut model = running();
    send(&mut model, step(1, &["remap"]));
    press(&mut model, &[Key::Char(' ')]);
    assert!(model.paused());
    for key in [Key::Enter, Key::Right, Key::Char('f')] {
        assert_eq!(press(&mut model, &[key]), [Effect::Draw], "{key:?}");
        assert!(model.ui.toast.as_ref().unwrap().text.contains("Space resumes"));
        assert!(model.ui.popup.is_none());
    }
    // Nor by a menu that was open before.
    press(&mut model, &[Key::Char(' '), Key::Char('f'), Key::Char(' ')]);
    assert_eq!(press(&mut model, &[Key::Enter]), [Effect::Draw]);
    assert!(!model.demo.as_ref().unwrap().choices.is_empty());
    press(&mut model, &[Key::Char(' ')]);
    assert_eq!(press(&mut model, &[Key::Enter])[0], Effect::SendToDemo("next".into()));
}

#[test]
fn step_is_explained_in_a_popup_that_closes_with_its_key() {
    let mut model = running();
    press(&mut model, &[Key::Char('e')]);
    assert!(model.ui.popup.is_none(), "there is no step yet");
    send(&mut model, step(1, &[]));
    press(&mut model, &[Key::Char('e')]);
    model.ui.hits.popup_lines = 4;
    press(&mut model, &[Key::End]);
    assert_eq!(model.ui.popup, Some(Popup::Explain { scroll: 3 }));
    press(&mut model, &[Key::Char('e')]);
    assert!(model.ui.popup.is_none());
}

#[test]
fn text_scrolls_to_its_ends_and_resets_with_a_step() {
    let mut model = running();
    model.ui.hits.told = TextGeometry {
        above: 3,
        below: 8,
        page: 5,
    };
    let mut after = |keys: &[Key]| {
        press(&mut model, keys);
        model.ui.demo_scroll
    };
    assert_eq!(after(&[Key::PageDown]), 5);
    assert_eq!(after(&[Key::PageDown]), 8);
    assert_eq!(after(&[Key::PageUp, Key::PageUp, Key::PageUp]), -3);
    send(&mut model, step(1, &[]));
    assert_eq!(model.ui.demo_scroll, 0);
    let wheel = Mouse {
        x: 0,
        y: 0,
        action: MouseAction::WheelDown,
    };
    feed(&mut model, [Event::Mouse(wheel)]);
    assert_eq!(model.ui.demo_scroll, 1);
}

/// A simulated run on a machine without a GPU may find no directory to publish in.
#[test]
fn simulation_that_cannot_publish_is_reported() {
    let mut model = model();
    feed(
        &mut model,
        [channels(SECOND, vec![]), nvml_state(SECOND, NvmlState::Missing)],
    );
    let toast = |model: &Model| model.ui.toast.clone().unwrap().text;
    assert!(toast(&model).contains("showing a simulated training run"));
    send(
        &mut model,
        DemoEvent::Unpublished("/x: it belongs to another user".into()),
    );
    assert_eq!(
        toast(&model),
        "the simulated training run cannot be seen: /x: it belongs to another user"
    );
}

/// The simulation begins by itself. What a key was answered stays until the user has read it.
#[test]
fn simulation_does_not_cover_the_answer_to_a_key() {
    let mut model = model();
    press(&mut model, &[Key::Char('4'), Key::Char('r')]);
    let answer = model.ui.toast.clone().unwrap();
    assert!(answer.text.contains("no GPU here to measure"), "{}", answer.text);
    feed(
        &mut model,
        [channels(SECOND, vec![]), nvml_state(SECOND, NvmlState::Missing)],
    );
    assert!(model.demo.is_some());
    assert_eq!(model.ui.toast.unwrap().text, answer.text);
}

#[test]
fn list_selects_the_demo_that_ran_last() {
    let mut model = running();
    model.setup.demos = ["fragmentation", "train"]
        .map(|name| DemoInfo {
            name: name.into(),
            ..DemoInfo::default()
        })
        .into();
    model.demo.as_mut().unwrap().name = "train".into();
    model.ui.demo_entry = 0;
    send(&mut model, DemoEvent::Spawned { pid: 78 });
    press(&mut model, &[Key::Char('x')]);
    assert_eq!(model.ui.demo_entry, 1);
}

#[test]
fn demo_process_is_selected_once_when_it_appears() {
    let mut model = running();
    let mut list = model.inputs.channels.channels.clone();
    list.push(channel(77, &[&[(MIB, gpumem_channel::BlockState::Allocated)]]));
    feed(&mut model, [channels(2 * SECOND, list.clone())]);
    assert_eq!(model.selected_process().unwrap().pid, 77);
    press(&mut model, &[Key::Char('1'), Key::Home]);
    feed(&mut model, [channels(3 * SECOND, list)]);
    assert_eq!(model.selected_process().unwrap().pid, 11, "the user's choice is kept");
}

#[test]
fn child_that_dies_early_has_failed() {
    let mut model = running();
    send(&mut model, step(1, &["release"]));
    press(&mut model, &[Key::Char('f')]);
    send(&mut model, DemoEvent::Exited("killed by signal 9".into()));
    let demo = model.demo.as_ref().unwrap();
    assert_eq!(demo.phase, DemoPhase::Failed("killed by signal 9".into()));
    assert!(model.ui.popup.is_none(), "its menu is closed");
    assert!(model.ui.toast.as_ref().unwrap().text.contains("signal 9"));
    assert_eq!(press(&mut model, &[Key::Char('1'), Key::Char(' ')]), [Effect::Draw]);
    assert!(model.paused(), "space pauses again");
}

/// If the dashboard was started for a demo that failed, its exit code says so.
#[test]
fn exit_code_is_that_of_the_requested_demo() {
    let quit = |model: &mut Model| press(model, &[Key::Char('q')]);
    let text = || "no driver".to_owned();
    for (news, code) in [
        (
            DemoEvent::GaveUp {
                text: text(),
                exit_code: 3,
            },
            3,
        ),
        (DemoEvent::Failed(text()), 1),
        (DemoEvent::Exited(text()), 1),
        (
            DemoEvent::Result {
                ok: false,
                outcome: DemoOutcome::default(),
            },
            0,
        ),
    ] {
        let mut model = running();
        send(&mut model, news.clone());
        assert_eq!(quit(&mut model), [Effect::Quit(0)], "not requested: {news:?}");
        let mut model = running();
        model.demo.as_mut().unwrap().asked_for = true;
        send(&mut model, news.clone());
        assert_eq!(quit(&mut model), [Effect::Quit(code)], "{news:?}");
        assert_eq!(press(&mut model, &[Key::Ctrl('c')]), [Effect::Quit(code)]);
        // Another demo was started since.
        press(&mut model, &[Key::Char('7'), Key::Enter]);
        assert_eq!(quit(&mut model), [Effect::Quit(0)], "{news:?}");
    }
}

#[test]
fn stopping_a_demo_with_x_is_no_failure() {
    let mut model = running();
    assert_eq!(press(&mut model, &[Key::Char('x')]), [Effect::StopDemo, Effect::Draw]);
    send(&mut model, DemoEvent::Exited("killed by signal 15".into()));
    assert_eq!(model.demo.as_ref().unwrap().phase, DemoPhase::Stopped);
}

#[test]
fn endless_demo_keeps_its_newest_steps() {
    let mut model = busy();
    press(&mut model, &[Key::Char('7'), Key::Down, Key::Enter]);
    send(&mut model, DemoEvent::Start(Box::default()));
    for number in 0..200 {
        send(&mut model, step(number, &[]));
    }
    let demo = model.demo.as_ref().unwrap();
    assert_eq!(
        (demo.name.as_str(), demo.steps.len(), demo.current().unwrap().number),
        ("train", Demo::MAX_STEPS, 199)
    );
    assert!(!demo.stepped(), "space pauses while it runs");
}

/// A complaint, before or after its first line, says more than that it has no channel.
#[test]
fn reason_for_not_publishing_is_kept_in_any_order() {
    let start = |why: Option<&str>| {
        DemoEvent::Start(Box::new(Demo {
            unpublished: why.map(Into::into),
            ..Demo::default()
        }))
    };
    let complaint = || DemoEvent::Unpublished("no room".into());
    for (news, expected) in [
        (vec![start(None)], None),
        (vec![start(Some("told so"))], Some("told so")),
        (vec![complaint(), start(Some("told so"))], Some("no room")),
        (vec![start(Some("told so")), complaint()], Some("no room")),
    ] {
        let mut model = busy();
        press(&mut model, &[Key::Char('7'), Key::Enter]);
        for news in news {
            send(&mut model, news);
        }
        assert_eq!(model.demo.unwrap().unpublished.as_deref(), expected);
    }
}

/// The first line of a demo says what its keys do, whatever its name. Space halts a replay and pauses what is shown of others.
#[test]
fn keys_of_a_demo_follow_from_its_kind() {
    let told = |kind: Option<DemoKind>| {
        let mut model = busy();
        model.demo = Some(Demo {
            name: "unknown".into(),
            ..Demo::default()
        });
        let start = Demo {
            total_steps: 50,
            kind,
            ..Demo::default()
        };
        send(&mut model, DemoEvent::Start(Box::new(start)));
        let waits = model.demo.as_ref().unwrap().phase == DemoPhase::Waiting;
        let effects = press(&mut model, &[Key::Char('7'), Key::Char(' ')]);
        let halted = (effects[0].clone(), model.paused());
        if model.paused() {
            press(&mut model, &[Key::Char(' ')]);
        }
        let effects = press(&mut model, &[Key::Right]);
        (waits, halted, effects.first().cloned())
    };
    let line = |line: &str| Effect::SendToDemo(line.into());
    let paused = (Effect::Draw, true);
    assert_eq!(
        told(Some(DemoKind::Stepped)),
        (true, paused.clone(), Some(line("next")))
    );
    assert_eq!(told(Some(DemoKind::Paced)), (false, (line("pause"), false), None));
    assert_eq!(told(Some(DemoKind::Looping)), (false, paused.clone(), None));
    assert_eq!(told(None), (false, paused, None));
}

/// Its passes are its steps, and they need no key.
#[test]
fn replay_runs_by_itself_with_a_line_per_pass() {
    let mut model = busy();
    model.demo = Some(Demo::default());
    let start = Demo {
        total_steps: 2,
        kind: Some(DemoKind::Paced),
        ..Demo::default()
    };
    send(&mut model, DemoEvent::Start(Box::new(start)));
    let pass = |number, title: &str, oom: Option<DemoOom>| {
        let step = DemoStep {
            number,
            title: title.into(),
            oom,
            ..DemoStep::default()
        };
        DemoEvent::Step(Box::new(step), Vec::new())
    };
    send(&mut model, pass(1, "0 %", None));
    send(&mut model, pass(1, "30 %", Some(DemoOom::default())));
    send(&mut model, pass(1, "60 %", None));
    send(&mut model, pass(2, "0 %", None));
    let demo = model.demo.as_ref().unwrap();
    assert!(demo.phase == DemoPhase::Running && !demo.stepped() && demo.paced());
    let told: Vec<_> = demo.steps.iter().map(|s| (s.title.as_str(), s.oom.is_some())).collect();
    assert_eq!(told, [("60 %", true), ("0 %", false)]);
    assert_eq!(
        press(&mut model, &[Key::Char('7'), Key::Char(' ')])[0],
        Effect::SendToDemo("pause".into())
    );
}

/// It keeps its first device. Other demos are simulated if there is no GPU.
#[test]
fn restarted_replay_runs_on_the_same_device() {
    for simulated in [false, true] {
        let mut model = busy();
        let replay = DemoInfo {
            name: "replay".into(),
            simulated: Some(simulated),
            ..DemoInfo::default()
        };
        model.setup.demos.insert(0, replay);
        let start = |name: &str, simulated| Effect::StartDemo {
            name: name.into(),
            simulated,
        };
        let keys = [Key::Char('7'), Key::Enter];
        assert_eq!(press(&mut model, &keys)[0], start("replay", simulated));
        send(&mut model, DemoEvent::Exited("exit code 0".into()));
        model.live.nvml = NvmlState::Missing;
        assert_eq!(press(&mut model, &[Key::Enter])[0], start("replay", simulated));
        send(&mut model, DemoEvent::Exited("exit code 0".into()));
        let keys = [Key::Down, Key::Enter];
        assert_eq!(press(&mut model, &keys)[0], start("fragmentation", true));
    }
}

/// On a GPU, the driver lists a demo's process before its channel is found.
#[test]
fn demo_process_is_selected_once_it_publishes() {
    let mut model = running();
    let listed = || nvml(2 * SECOND, 12 * GIB, &[(11, 5 * GIB), (77, GIB)]);
    feed(&mut model, [listed()]);
    assert_ne!(
        model.selected_process().map(|p| p.pid),
        Some(77),
        "there is nothing to see yet"
    );
    let begins = channel(77, &[&[(GIB, gpumem_channel::BlockState::Allocated)]]);
    feed(&mut model, [channels(3 * SECOND, vec![begins]), listed()]);
    assert_eq!(model.selected_process().map(|p| p.pid), Some(77));
}
