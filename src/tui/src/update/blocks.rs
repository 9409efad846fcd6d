//! The Blocks view: moves the cursor and zooms.

use crate::event::Effect;
use crate::model::{Action, Model, Process};

use super::{attach, map, overview};

/// Performs an action of this view. Returns `None` if the view does not use it.
pub(super) fn act(model: &mut Model, action: Action) -> Option<Vec<Effect>> {
    match action {
        Action::Zoom(by) => zoom(model, by),
        Action::ZoomOut => model.ui.blocks.zoom = 0,
        Action::Process(by) => select_next(model, by),
        Action::Move(step) => map::step(model, step),
        Action::Attach => return Some(attach::ask(model)),
        _ => return None,
    }
    Some(vec![Effect::Draw])
}

/// Selects the next (positive) or previous process that has a map, or any process if none has one.
fn select_next(model: &mut Model, by: i8) {
    if !model.listed().any(Process::has_map) {
        return overview::select_row(model, by.into());
    }
    let rows: Vec<&Process> = model.listed().collect();
    let at = model.selected_row();
    let next = match by {
        1.. => rows
            .iter()
            .skip(at.map_or(0, |at| at + 1))
            .find(|process| process.has_map()),
        _ => rows
            .iter()
            .take(at.unwrap_or(rows.len()))
            .rfind(|process| process.has_map()),
    };
    if let Some(id) = next.map(|process| process.id) {
        overview::select_process(model, Some(id));
    }
}

fn zoom(model: &mut Model, by: i8) {
    let deepest = model.ui.hits.map.whole.deepest();
    let zoom = model.ui.blocks.zoom.min(deepest);
    model.ui.blocks.zoom = zoom.saturating_add_signed(by).min(deepest);
}
