//! The Overview: selects processes and devices.

use crate::event::Effect;
use crate::model::{Action, BlocksUi, Model, Move, Process, ProcessId, Severity, View};

use super::{attach, map, ranks, tags, toast};

/// Performs an action of this view. Returns `None` if the view does not use it.
pub(super) fn act(model: &mut Model, action: Action) -> Option<Vec<Effect>> {
    let page = isize::from(model.ui.hits.page.max(2) as i16 - 1);
    match action {
        Action::Move(Move::Up) => select_row(model, -1),
        Action::Move(Move::Down) => select_row(model, 1),
        Action::Move(Move::PageUp) => select_row(model, -page),
        Action::Move(Move::PageDown) => select_row(model, page),
        Action::Move(Move::First) => select_row(model, isize::MIN),
        Action::Move(Move::Last) => select_row(model, isize::MAX),
        Action::Move(Move::Left) => select_device(model, -1),
        Action::Move(Move::Right) => select_device(model, 1),
        // The selected process is not visible.
        Action::Enter if model.rows.is_empty() => {}
        Action::Enter if has_blocks(model) => model.ui.view = View::Blocks,
        Action::Enter => return Some(why_no_map(model)),
        Action::Ranks => return Some(ranks::open(model)),
        Action::Attach => return Some(attach::ask(model)),
        _ => return None,
    }
    Some(vec![Effect::Draw])
}

/// Checks whether the selected process has a block map, even if it was not read yet.
pub(super) fn has_blocks(model: &Model) -> bool {
    let unread = |p: &Process| p.has_unread_blocks(model.map.as_ref());
    model.map.is_some() || model.selected_process().is_some_and(unread)
}

fn why_no_map(model: &mut Model) -> Vec<Effect> {
    match model.selected_process() {
        Some(process) => {
            let name = model.world().name_of(process);
            let text = format!("{name} has no block map: {}", process.state.text());
            toast(model, Severity::Info, text)
        }
        None => Vec::new(),
    }
}

/// Moves the selection by rows. If the selected process is not listed, an end of the list is selected.
pub(super) fn select_row(model: &mut Model, by: isize) {
    let count = model.rows.len();
    let Some(last) = count.checked_sub(1) else { return };
    let target = match model.selected_row() {
        Some(row) => row.saturating_add_signed(by).min(last),
        None if by < 0 => last,
        None => 0,
    };
    let id = model.listed().nth(target).map(|p| p.id);
    select_process(model, id);
}

/// Selects a process and the device it uses.
pub(super) fn select_process(model: &mut Model, id: Option<ProcessId>) {
    model.ui.filter.before = None;
    if model.ui.process != id {
        model.ui.process = id;
        model.ui.blocks = BlocksUi::default();
    }
    if let Some(id) = id
        && model.world().devices.iter().any(|d| d.key == id.device)
    {
        model.ui.device = Some(id.device);
    }
    map::refresh(model);
    tags::refresh(model);
}

pub(super) fn select_device(model: &mut Model, by: isize) {
    let devices = &model.world().devices;
    let Some(last) = devices.len().checked_sub(1) else {
        return;
    };
    let at = model
        .selected_device()
        .and_then(|d| devices.iter().position(|e| e.key == d.key))
        .unwrap_or(0);
    model.ui.device = Some(devices[at.saturating_add_signed(by).min(last)].key);
}
