//! The Blocks view: moves the cursor and zooms.

use crate::event::Effect;
use crate::model::{Action, Model};

use super::{attach, map, overview};

/// Performs an action of this view. Returns `None` if the view does not use it.
pub(super) fn act(model: &mut Model, action: Action) -> Option<Vec<Effect>> {
    match action {
        Action::Zoom(by) => zoom(model, by),
        Action::ZoomOut => model.ui.blocks.zoom = 0,
        Action::Process(by) => overview::select_row(model, by.into()),
        Action::Move(step) => map::step(model, step),
        Action::Attach => return Some(attach::ask(model)),
        _ => return None,
    }
    Some(vec![Effect::Draw])
}

fn zoom(model: &mut Model, by: i8) {
    let deepest = model.ui.hits.map.whole.deepest();
    let zoom = model.ui.blocks.zoom.min(deepest);
    model.ui.blocks.zoom = zoom.saturating_add_signed(by).min(deepest);
}
