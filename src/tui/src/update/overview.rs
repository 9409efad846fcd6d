//! The Overview: selects processes and devices.

use std::cmp::Reverse;

use crate::event::Effect;
use crate::model::{Action, BlocksUi, DeviceKey, Figures, Model, Move, Nanos, Process, ProcessId, Severity, View};

use super::{attach, map, ranks, relist, tags, toast};

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
        Action::OneDevice => return Some(one_device(model)),
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

/// Selects a process and the device it uses, for the user.
pub(super) fn select_process(model: &mut Model, id: Option<ProcessId>) {
    model.ui.filter.before = None;
    model.ui.chosen = id;
    if model.ui.process != id {
        model.ui.process = id;
        model.ui.blocks = BlocksUi::default();
    }
    if let Some(id) = id
        && model.world().devices.iter().any(|d| d.key == id.device)
    {
        choose_device(model, id.device);
    }
    map::refresh(model);
    tags::refresh(model);
}

/// Selects a device. A list that is restricted to the selected device follows.
pub(super) fn choose_device(model: &mut Model, key: DeviceKey) {
    let same = model.ui.device == Some(key);
    model.ui.device = Some(key);
    if model.ui.one_device && !same {
        relist(model);
    }
}

/// Restricts the list of processes to the selected device, or lifts that.
fn one_device(model: &mut Model) -> Vec<Effect> {
    let Some(device) = model.selected_device() else {
        return Vec::new();
    };
    let (key, label) = (device.key, device.label.clone());
    if !model.ui.one_device && model.world().devices.len() == 1 {
        return toast(model, Severity::Info, format!("{label} is the only device"));
    }
    // Otherwise the device would change with the selected process.
    model.ui.device = Some(key);
    model.ui.one_device = !model.ui.one_device;
    relist(model);
    vec![Effect::Draw]
}

/// Selects the publisher that matters most if the user selected no process: the one that ran out of memory last, else the one
/// with the most reserved memory. One on the device that the user selected comes first.
pub(super) fn select_by_importance(model: &mut Model) {
    if model.ui.process.is_some() && model.ui.process == model.ui.chosen {
        return;
    }
    let there = |process: &Process| model.ui.device.is_none_or(|device| device == process.id.device);
    let importance = |process: &&Process| {
        let figures = process.figures.as_ref();
        (
            there(process),
            figures.and_then(|figures| ran_out_at(figures, model.now)),
            figures.map(|figures| figures.reserved),
        )
    };
    // A black box of long ago matters less than what runs.
    let matters = |process: &&Process| process.has_map() && (process.state.alive() || process.has_just_failed());
    let most = model
        .listed()
        .filter(matters)
        .min_by_key(|process| Reverse(importance(process)));
    if let Some(id) = most.map(|process| process.id) {
        select_process(model, Some(id));
    }
}

/// Returns when a publisher last ran out of memory; 0 if that is not known.
fn ran_out_at(figures: &Figures, now: Nanos) -> Option<Nanos> {
    let at = figures.ran_out.as_ref().map(|ran_out| ran_out.at.min(now));
    at.or((figures.ooms > 0).then_some(0))
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
    let key = devices[at.saturating_add_signed(by).min(last)].key;
    choose_device(model, key);
}
