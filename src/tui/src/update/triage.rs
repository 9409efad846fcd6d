//! The Triage view: chooses whose failure is shown, and reads pasted text.

use std::sync::Arc;

use crate::event::Effect;
use crate::model::{Action, Model, Move, Severity, View};

use super::{overview, timeline, toast};

/// Opens the view. It shows the process that failed last, unless the selected one has failed, too.
pub(super) fn open(model: &mut Model) {
    model.ui.view = View::Triage;
    model.ui.triage.scroll = 0;
    let failed: Vec<_> = model.failed().iter().map(|process| process.id).collect();
    let selected = model.selected_process().map(|process| process.id);
    if !selected.is_some_and(|selected| failed.contains(&selected))
        && let Some(last) = failed.first()
    {
        overview::select_process(model, Some(*last));
    }
}

/// Judges a pasted text.
pub(super) fn paste(model: &mut Model, text: &str) -> Vec<Effect> {
    model.ui.triage.pasted = Some(Arc::new(gpumem_triage::triage(text)));
    model.ui.triage.scroll = 0;
    vec![Effect::Draw]
}

/// Performs an action of this view. Returns `None` if the view does not use it.
pub(super) fn act(model: &mut Model, action: Action) -> Option<Vec<Effect>> {
    let page = i32::from(model.ui.term.height.saturating_sub(8).max(1));
    match action {
        Action::Move(Move::Up) => scroll(model, -1),
        Action::Move(Move::Down) => scroll(model, 1),
        Action::Move(Move::PageUp) => scroll(model, -page),
        Action::Move(Move::PageDown) => scroll(model, page),
        Action::Move(Move::First) => model.ui.triage.scroll = 0,
        Action::Move(Move::Last) => scroll(model, i32::from(u16::MAX)),
        Action::Scroll(by) => scroll(model, by.into()),
        Action::Process(by) => next(model, by),
        Action::Enter if model.triaged().is_some() => model.ui.view = View::Blocks,
        Action::Moment => match model.triaged_failure() {
            Some(at) => timeline::open_at(model, Some(at)),
            None => {
                return Some(toast(
                    model,
                    Severity::Info,
                    "no failed request is shown, or its time is not known",
                ));
            }
        },
        // In this view the key drops a text.
        Action::StopDemo => {
            model.ui.triage.pasted = None;
            model.ui.triage.scroll = 0;
        }
        _ => return None,
    }
    Some(vec![Effect::Draw])
}

fn scroll(model: &mut Model, by: i32) {
    let last = i32::from(model.ui.hits.triage_lines.saturating_sub(1));
    let at = i32::from(model.ui.triage.scroll).saturating_add(by).clamp(0, last);
    model.ui.triage.scroll = at as u16;
}

/// Selects the next process that has failed, in the order of their failures.
fn next(model: &mut Model, by: i8) {
    model.ui.triage.pasted = None;
    model.ui.triage.scroll = 0;
    let ids: Vec<_> = model.failed().iter().map(|process| process.id).collect();
    let at = ids.iter().position(|id| Some(*id) == model.ui.process);
    let to = match at {
        Some(at) => (at as isize + isize::from(by)).rem_euclid(ids.len() as isize) as usize,
        None => 0,
    };
    if let Some(id) = ids.get(to) {
        overview::select_process(model, Some(*id));
    }
}
