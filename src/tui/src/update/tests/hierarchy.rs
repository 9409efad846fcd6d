//! Measuring a card: who is asked, what is started, and what is kept.

use super::sample::*;
use crate::event::{BenchEvent, DemoEvent, Effect, Event, Key};
use crate::model::*;
use crate::update::update;

/// A model with a card that this many programs use, in the Hierarchy view.
fn with_users(pids: &[u32]) -> Model {
    let mut model = model();
    let users: Vec<(u32, u64)> = pids.iter().map(|pid| (*pid, GIB)).collect();
    feed(&mut model, [nvml(SECOND, 20 * GIB, &users)]);
    press(&mut model, &[Key::Char('4')]);
    assert_eq!(model.ui.view, View::Hierarchy);
    model
}

fn uuid(model: &Model) -> String {
    model.measurable().unwrap().uuid_text().unwrap()
}

fn started(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::StartBench { .. }))
}

fn bench(model: &mut Model, event: BenchEvent) -> Vec<Effect> {
    update(model, 2 * SECOND, Event::Demo(DemoEvent::Bench(event)))
}

fn measured(model: &Model, driver: &str, date: u64) -> BenchEvent {
    let found = Hierarchy {
        uuid: uuid(model),
        driver: driver.into(),
        date,
        ..Hierarchy::default()
    };
    BenchEvent::Hierarchy(Box::new(found), None)
}

#[test]
fn idle_card_is_measured_at_once() {
    let mut model = with_users(&[]);
    let effects = press(&mut model, &[Key::Char('r')]);
    let devices = uuid(&model);
    assert!(effects.contains(&Effect::StartBench { devices }), "{effects:?}");
    let progress = BenchEvent::Progress {
        done: (3, 40),
        what: "L1".into(),
        left: 5 * SECOND,
    };
    bench(&mut model, progress);
    assert_eq!(model.hierarchies.measuring.as_ref().unwrap().done, (3, 40));
    let found = measured(&model, "580.1", 7);
    bench(&mut model, found);
    assert!(model.hierarchies.measuring.is_none());
    assert_eq!(model.hierarchies.kept[0].date, 7);
}

#[test]
fn used_card_is_measured_only_after_a_question() {
    let mut model = with_users(&[99]);
    assert!(!started(&press(&mut model, &[Key::Char('r')])));
    assert_eq!(model.ui.popup, Some(Popup::Measure));
    assert!(!started(&press(&mut model, &[Key::Esc])));
    assert!(model.ui.popup.is_none() && model.hierarchies.measuring.is_none());
    assert!(started(&press(&mut model, &[Key::Char('r'), Key::Enter])));
}

#[test]
fn second_press_stops_the_measurement() {
    let mut model = with_users(&[]);
    press(&mut model, &[Key::Char('r')]);
    let effects = press(&mut model, &[Key::Char('r')]);
    assert!(effects.contains(&Effect::StopDemo) && model.hierarchies.measuring.is_none());
    // Its last words come later, and mean nothing.
    let found = measured(&model, "580.1", 7);
    bench(&mut model, found);
    assert!(model.hierarchies.kept.is_empty());
}

#[test]
fn measurement_and_demo_end_each_other() {
    let mut model = with_users(&[]);
    model.demo = Some(Demo {
        name: "train".into(),
        phase: DemoPhase::Running,
        ..Demo::default()
    });
    let effects = press(&mut model, &[Key::Char('r')]);
    assert!(effects.contains(&Effect::StopDemo) && started(&effects));
    assert!(!model.demo.as_ref().unwrap().running());
    model.setup.demos = vec![DemoInfo {
        name: "train".into(),
        ..DemoInfo::default()
    }];
    press(&mut model, &[Key::Char('7'), Key::Enter]);
    assert!(model.hierarchies.measuring.is_none() && model.demo.as_ref().unwrap().running());
}

#[test]
fn failure_is_said_and_ends_the_measurement() {
    for event in [
        DemoEvent::Exited("it was killed by signal 9".into()),
        DemoEvent::GaveUp {
            text: "out of memory".into(),
            exit_code: 1,
        },
    ] {
        let mut model = with_users(&[]);
        press(&mut model, &[Key::Char('r')]);
        update(&mut model, 2 * SECOND, Event::Demo(event));
        assert!(model.hierarchies.measuring.is_none() && model.hierarchies.failed.is_some());
        assert_eq!(model.ui.toast.as_ref().unwrap().severity, Severity::Error);
    }
}

#[test]
fn shown_figures_are_of_the_card_and_driver_if_there_are_any() {
    let mut model = with_users(&[]);
    assert_eq!(model.hierarchy(), None);
    model.hierarchies.example = Some(std::sync::Arc::new(Hierarchy::default()));
    let whose = |model: &Model| model.hierarchy().map(|(shown, whose)| (shown.date, whose));
    assert_eq!(whose(&model), Some((0, Whose::Example)));
    let card = uuid(&model);
    let mut keep = |driver: &str, uuid: &str, date| {
        model.hierarchies.keep(Hierarchy {
            uuid: uuid.into(),
            driver: driver.into(),
            date,
            ..Hierarchy::default()
        });
    };
    keep("1.0", "GPU-another", 1);
    keep("1.0", &card, 2);
    model.live.driver.version = Some("2.0".into());
    assert_eq!(whose(&model), Some((2, Whose::OtherDriver)));
    model.hierarchies.keep(Hierarchy {
        uuid: card,
        driver: "2.0".into(),
        date: 3,
        ..Hierarchy::default()
    });
    assert_eq!(whose(&model), Some((3, Whose::Card)));
}

#[test]
fn without_a_gpu_nothing_is_measured() {
    let mut model = model();
    press(&mut model, &[Key::Char('4')]);
    assert!(!started(&press(&mut model, &[Key::Char('r')])));
    assert!(model.hierarchies.measuring.is_none());
}
