//! The Unified view: chooses a process, moves the cursor of its map, asks for causes.

use gpumem_probe::Target;

use super::{overview, toast};
use crate::event::Effect;
use crate::model::{Action, Model, Move, Severity, Tracking};

/// Performs an action, if it is of use here.
pub(super) fn act(model: &mut Model, action: Action) -> Option<Vec<Effect>> {
    let shown = model.managed_selected();
    match (action, shown) {
        (Action::Move(step), Some(target)) => move_cursor(model, target, step),
        (Action::Move(step), None) => choose(model, step),
        (Action::Enter, None) => {
            let chosen = chosen(model)?;
            show(model, chosen);
        }
        (Action::Zoom(by), Some(_)) => {
            let deepest = model.ui.hits.pages.whole.deepest();
            let zoom = model.ui.unified.zoom.min(deepest);
            model.ui.unified.zoom = zoom.saturating_add_signed(by).min(deepest);
        }
        (Action::ZoomOut, Some(_)) => model.ui.unified.zoom = 0,
        (Action::ListManaged, _) => {
            model.ui.unified.list = shown.is_some();
            model.ui.unified.chosen = shown.or(model.ui.unified.chosen);
        }
        (Action::Process(by), _) => step(model, by),
        (Action::Causes, _) => return Some(toggle_causes(model, shown)),
        _ => return None,
    }
    Some(vec![Effect::Draw])
}

/// Returns the processes with managed memory, in the order of the list.
fn listed(model: &Model) -> Vec<Target> {
    let managed = &model.world().managed;
    managed.with_memory().map(|(target, ..)| *target).collect()
}

/// Returns the chosen process of the list: the first, before any was.
fn chosen(model: &Model) -> Option<Target> {
    let listed = listed(model);
    let chosen = model.ui.unified.chosen.filter(|target| listed.contains(target));
    chosen.or(listed.first().copied())
}

fn choose(model: &mut Model, step: Move) {
    let listed = listed(model);
    let Some(last) = listed.len().checked_sub(1) else {
        return;
    };
    let at = chosen(model).and_then(|target| listed.iter().position(|t| *t == target));
    let at = at.unwrap_or(0);
    let page = usize::from(model.ui.hits.page.max(2) - 1);
    let to = match step {
        Move::Up | Move::Left => at.saturating_sub(1),
        Move::Down | Move::Right => at + 1,
        Move::PageUp => at.saturating_sub(page),
        Move::PageDown => at + page,
        Move::First => 0,
        Move::Last => last,
    };
    model.ui.unified.chosen = Some(listed[to.min(last)]);
}

/// Shows the next or the previous process.
fn step(model: &mut Model, by: i8) {
    let listed = listed(model);
    let Some(last) = listed.len().checked_sub(1) else {
        return;
    };
    let at = model.managed_selected().or_else(|| chosen(model));
    let at = at.and_then(|target| listed.iter().position(|t| *t == target));
    let to = at.map_or(0, |at| at.saturating_add_signed(by.into()).min(last));
    show(model, listed[to]);
}

/// Shows a process of the list.
pub(super) fn show(model: &mut Model, target: Target) {
    let row = model
        .world()
        .processes
        .iter()
        .find(|p| p.pid == target.pid && p.state.alive());
    let id = row.map(|p| p.id);
    if id != model.ui.process {
        model.ui.unified.cursor = None;
        model.ui.unified.zoom = 0;
    }
    model.ui.unified.list = false;
    model.ui.unified.chosen = Some(target);
    overview::select_process(model, id);
}

fn toggle_causes(model: &mut Model, shown: Option<Target>) -> Vec<Effect> {
    if model
        .ui
        .unified
        .causes
        .take()
        .is_some_and(|causes| shown == Some(causes))
    {
        return toast(model, Severity::Info, "causes are off");
    }
    let Some(target) = shown else {
        return toast(model, Severity::Info, "choose a process first: Enter");
    };
    if model.world().managed.is_simulated(target) {
        return toast(model, Severity::Info, "a simulated device tells causes by itself");
    }
    if model.setup.tracking == Tracking::Never {
        return toast(model, Severity::Info, "--uvm off: nothing is attached to processes");
    }
    model.ui.unified.causes = Some(target);
    let text = format!(
        "causes of {} are on: its page faults take up to half as long again (H200, 2026-11). c ends it",
        target.pid
    );
    toast(model, Severity::Info, text)
}

/// Moves the cursor by cells and lines of what was drawn.
fn move_cursor(model: &mut Model, target: Target, step: Move) {
    let world = model.world();
    let process = world.managed.process(target);
    let Some(pages) = process.and_then(|process| process.pages.as_ref()) else {
        return;
    };
    let Some(first) = pages.ranges.first().map(|r| r.range.start) else {
        return;
    };
    let geometry = model.ui.hits.pages;
    let layout = geometry.layout;
    let here = model.ui.unified.cursor.unwrap_or(first);
    let Some(range) = pages.nearest(here) else { return };
    let bounds = pages.ranges[range].range;
    let here = here.clamp(bounds.start, bounds.end.saturating_sub(1));
    let page = u64::from(geometry.lines.max(2) - 1);
    let to_line = |to: &dyn Fn(u64, u64) -> u64| {
        let last = layout.lines(&**pages).checked_sub(1)?;
        let (line, column) = layout.place(&**pages, range, here);
        layout.address(&**pages, to(line, last), column)
    };
    let neighbour = |n: Option<usize>| n.and_then(|n| pages.ranges.get(n)).map(|r| r.range);
    let to = match step {
        Move::Left => match here.checked_sub(layout.bytes_per_cell).filter(|&to| to >= bounds.start) {
            None if here > bounds.start => Some(bounds.start),
            None => neighbour(range.checked_sub(1)).map(|range| range.end - 1),
            to => to,
        },
        Move::Right => match here.saturating_add(layout.bytes_per_cell) {
            to if to < bounds.end => Some(to),
            _ => neighbour(Some(range + 1)).map(|range| range.start),
        },
        Move::Up => to_line(&|line, _| line.saturating_sub(1)),
        Move::Down => to_line(&|line, last| (line + 1).min(last)),
        Move::PageUp => to_line(&|line, _| line.saturating_sub(page)),
        Move::PageDown => to_line(&|line, last| (line + page).min(last)),
        Move::First => Some(first),
        Move::Last => pages.ranges.last().map(|r| r.range.end - 1),
    };
    model.ui.unified.cursor = Some(to.unwrap_or(here));
}
