//! Handles keys. The key map maps a key to an action; the open view performs it, or else the dashboard does. No key kills a
//! process other than the demo.

use gpumem_text::is_harmful;

use crate::event::{Effect, Key};
use crate::model::{Action, Demo, Model, Popup, Process, Severity, VIEWS, View, action_of};

use super::{demo, overview, perform, popup, relist, report_lost_selection, toast, triage};

/// Most characters of a filter.
const FILTER_MAX: usize = 64;

/// Handles a key: in the filter line if it is being edited, else in the popup, else in the view or the dashboard.
pub(super) fn press(model: &mut Model, key: Key) -> Vec<Effect> {
    let asked = action_of(model.ui.view, key);
    if let (Key::Ctrl(_), Some(action)) = (key, asked) {
        return perform(model, action);
    }
    if model.ui.filter.editing {
        return type_filter(model, key);
    }
    if model.ui.popup.is_some() {
        return popup::press(model, key);
    }
    asked.map_or_else(Vec::new, |action| perform(model, action))
}

/// Appends pasted text to the filter while that is being edited, and has it judged in the Triage view. It is ignored elsewhere, since
/// pasted text must not act as keys.
pub(super) fn paste(model: &mut Model, text: &str) -> Vec<Effect> {
    if !model.ui.filter.editing {
        return match model.ui.view {
            View::Triage if model.ui.popup.is_none() => triage::paste(model, text),
            _ => Vec::new(),
        };
    }
    for c in text.chars().filter(|&c| !is_harmful(c)) {
        push_filter(model, c);
    }
    relist(model);
    vec![Effect::Draw]
}

/// Quits, with the exit code of the demo if the dashboard was started for one that failed, else with 0.
fn quit(model: &Model) -> Vec<Effect> {
    let failure = model.demo.as_ref().and_then(Demo::failure);
    vec![Effect::Quit(failure.map_or(0, |(code, _)| code))]
}

/// Performs an action that is the same in every view.
pub(super) fn everywhere(model: &mut Model, action: Action) -> Vec<Effect> {
    match action {
        Action::Quit => return quit(model),
        Action::Suspend => return vec![Effect::Suspend],
        Action::Repaint => return vec![Effect::Repaint],
        Action::Help => model.ui.popup = Some(Popup::Help { scroll: 0 }),
        Action::Findings => {
            model.ui.popup = Some(Popup::Findings {
                chosen: None,
                scroll: 0,
            })
        }
        Action::Filter => {
            model.ui.filter.editing = true;
            model.ui.view = View::Overview;
        }
        Action::Sort => {
            let selected = crate::model::Column::ALL
                .iter()
                .position(|c| *c == model.order())
                .unwrap_or(0);
            model.ui.popup = Some(Popup::Sort { selected });
        }
        Action::Space | Action::Pause => return pause(model),
        Action::BlackBoxes => return black_boxes(model),
        Action::ChooseFix => return demo::choose_fix(model),
        Action::Open(view) => open(model, view),
        Action::NextView => cycle_view(model, 1),
        Action::PreviousView => cycle_view(model, -1),
        Action::Back => return escape(model),
        _ => return Vec::new(),
    }
    vec![Effect::Draw]
}

/// Toggles whether black boxes are listed. Shows a message if there are none that were not listed before, since nothing else
/// would change.
fn black_boxes(model: &mut Model) -> Vec<Effect> {
    model.ui.black_boxes = !model.ui.black_boxes;
    relist(model);
    // The message that mentions this key is no longer needed.
    if model.ui.toast.as_ref().is_some_and(|t| t.severity == Severity::Info) {
        model.ui.toast = None;
    }
    let world = model.world();
    if model.ui.black_boxes && model.listable_past() == 0 && world.channels_at().is_some() {
        let chosen = match (model.only_device(), model.setup.only.len()) {
            (Some(device), _) => format!(" on {}", device.label),
            (None, 0) => String::new(),
            (None, 1) => " on the chosen device".to_owned(),
            (None, _) => " on the chosen devices".to_owned(),
        };
        let devices = model.listed_devices();
        let is_there = |p: &&Process| devices.as_ref().is_none_or(|devices| devices.contains(&p.id.device));
        let text = match world.processes.iter().filter(is_there).all(|p| p.state.alive()) {
            true => format!("no program that ended left a black box{chosen}"),
            false => format!("there are no black boxes{chosen} but those that are listed"),
        };
        return toast(model, Severity::Info, text);
    }
    vec![Effect::Draw]
}

/// Clears the filter if there is one, else returns to the Overview.
fn escape(model: &mut Model) -> Vec<Effect> {
    if !model.ui.filter.text.is_empty() {
        model.ui.filter.text.clear();
        relist(model);
    } else if model.ui.view != View::Overview {
        model.ui.view = View::Overview;
    } else {
        return Vec::new();
    }
    vec![Effect::Draw]
}

/// Toggles whether what is shown is frozen. Sampling continues either way.
pub(super) fn pause(model: &mut Model) -> Vec<Effect> {
    let (before, selected) = (model.frozen.take(), model.ui.process);
    if before.is_none() {
        model.frozen = Some(Box::new(model.live.clone()));
    }
    relist(model);
    if let Some(before) = before {
        report_lost_selection(model, &before, selected);
    }
    vec![Effect::Draw]
}

fn cycle_view(model: &mut Model, by: isize) {
    let at = model.ui.view as isize + by;
    open(model, VIEWS[at.rem_euclid(VIEWS.len() as isize) as usize].view);
}

/// Opens a view. From the Overview, the Blocks view shows what matters most unless the user selected a process.
pub(super) fn open(model: &mut Model, view: View) {
    if (model.ui.view, view) == (View::Overview, View::Blocks) {
        overview::select_by_importance(model);
    }
    match view {
        View::Triage => triage::open(model),
        _ => model.ui.view = view,
    }
}

fn type_filter(model: &mut Model, key: Key) -> Vec<Effect> {
    match key {
        Key::Enter => model.ui.filter.editing = false,
        Key::Esc => {
            model.ui.filter.editing = false;
            model.ui.filter.text.clear();
        }
        Key::Backspace if model.ui.filter.text.is_empty() => model.ui.filter.editing = false,
        Key::Backspace => drop(model.ui.filter.text.pop()),
        Key::Ctrl('u') => model.ui.filter.text.clear(),
        Key::Up => overview::select_row(model, -1),
        Key::Down => overview::select_row(model, 1),
        Key::Char(c) => push_filter(model, c),
        _ => return Vec::new(),
    }
    relist(model);
    vec![Effect::Draw]
}

fn push_filter(model: &mut Model, c: char) {
    if model.ui.filter.text.chars().count() < FILTER_MAX {
        model.ui.filter.text.push(c);
    }
}
