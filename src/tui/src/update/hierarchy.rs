//! The Hierarchy view: selects a level, measures a device.

use super::{demo, overview, toast};
use crate::event::{BenchEvent, DemoEvent, Effect};
use crate::model::{Action, Measuring, Model, Move, Popup, Severity};

/// Performs an action of this view. Returns `None` if the view does not use it.
pub(super) fn act(model: &mut Model, action: Action) -> Option<Vec<Effect>> {
    match action {
        Action::Move(step @ (Move::Left | Move::Right)) => return overview::act(model, Action::Move(step)),
        Action::Move(step) => select(model, step),
        Action::Enter => model.ui.hierarchy.explained = !model.ui.hierarchy.explained,
        Action::Back if model.ui.hierarchy.explained => model.ui.hierarchy.explained = false,
        Action::Measure => return Some(measure(model)),
        _ => return None,
    }
    Some(vec![Effect::Draw])
}

fn select(model: &mut Model, step: Move) {
    let last = model
        .hierarchy()
        .map_or(0, |(shown, _)| shown.levels.len().saturating_sub(1));
    let at = model.ui.hierarchy.level.min(last);
    model.ui.hierarchy.level = match step {
        Move::Up | Move::PageUp => at.saturating_sub(1),
        Move::Down | Move::PageDown => (at + 1).min(last),
        Move::First => 0,
        Move::Last => last,
        Move::Left | Move::Right => at,
    };
}

/// Measures the selected device, or stops a measurement. Asks first if other programs use the device.
fn measure(model: &mut Model) -> Vec<Effect> {
    if model.hierarchies.measuring.take().is_some() {
        let mut effects = vec![Effect::StopDemo];
        effects.extend(toast(model, Severity::Info, "the measurement was stopped"));
        return effects;
    }
    if model.measurable().is_none() {
        return toast(
            model,
            Severity::Info,
            "no GPU here to measure: these figures are an example",
        );
    }
    if model.users_of_selected() > 0 {
        model.ui.popup = Some(Popup::Measure);
        return vec![Effect::Draw];
    }
    start(model)
}

/// Starts to measure the selected device. A demo that runs is ended, because each would disturb the other.
pub(super) fn start(model: &mut Model) -> Vec<Effect> {
    let uuid = model.measurable().and_then(|device| device.uuid_text());
    let (Some(uuid), Some(devices)) = (uuid, model.measured_devices()) else {
        return toast(model, Severity::Warning, "the device is gone");
    };
    let mut effects = match model.demo.as_ref().is_some_and(|demo| demo.running()) {
        true => demo::stop(model),
        false => Vec::new(),
    };
    model.hierarchies.failed = None;
    model.hierarchies.measuring = Some(Measuring {
        uuid,
        what: "it is starting".into(),
        ..Measuring::default()
    });
    effects.extend([Effect::StartBench { devices }, Effect::Draw]);
    effects
}

/// Handles an event of the child while it measures.
pub(super) fn handle(model: &mut Model, event: DemoEvent) -> Vec<Effect> {
    let Some(measuring) = &mut model.hierarchies.measuring else {
        return Vec::new();
    };
    match event {
        DemoEvent::Spawned { pid } => measuring.pid = Some(pid),
        DemoEvent::Bench(BenchEvent::Progress { done, what, left }) => {
            (measuring.done, measuring.what, measuring.left) = (done, what, left);
        }
        DemoEvent::Bench(BenchEvent::Hierarchy(found, not_kept)) => {
            model.hierarchies.measuring = None;
            model.hierarchies.keep(*found);
            return match not_kept {
                None => toast(model, Severity::Info, "measured, and kept for the next time"),
                Some(why) => toast(model, Severity::Warning, format!("measured, but not kept: {why}")),
            };
        }
        DemoEvent::Failed(why) | DemoEvent::GaveUp { text: why, .. } | DemoEvent::Exited(why) => {
            model.hierarchies.measuring = None;
            model.hierarchies.failed = Some(why.clone());
            return toast(model, Severity::Error, format!("measuring: {why}"));
        }
        // Demos say these.
        DemoEvent::Start(_)
        | DemoEvent::Step(..)
        | DemoEvent::Unpublished(_)
        | DemoEvent::Notice(_)
        | DemoEvent::Result { .. } => {}
    }
    vec![Effect::Draw]
}
