//! Handles the mouse. The view has recorded the target of each area of the screen.

use crate::event::{Effect, Mouse, MouseAction};
use crate::model::{Model, Popup, Target, View};

use super::{demo, keys, map, overview, perform, popup, unified};

pub(super) fn act(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    match mouse.action {
        MouseAction::Click => click(model, mouse),
        MouseAction::Drag => drag(model, mouse),
        MouseAction::WheelUp => wheel(model, -1),
        MouseAction::WheelDown => wheel(model, 1),
    }
}

fn click(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    let hit = model.ui.hits.at(mouse.x, mouse.y);
    if model.ui.popup.is_some() {
        // A click outside its entries closes the popup, as Esc does.
        return match hit {
            Some((Target::Entry(n), _)) => popup::pick(model, n),
            _ => popup::close(model),
        };
    }
    let Some((target, column)) = hit else { return Vec::new() };
    match target {
        Target::View(view) => keys::open(model, view),
        Target::Device(key) => overview::choose_device(model, key),
        Target::Process(id) if model.ui.process == Some(id) && overview::has_blocks(model) => {
            model.ui.view = View::Blocks
        }
        Target::Process(id) => overview::select_process(model, Some(id)),
        Target::Level(n) => model.ui.hierarchy.level = n,
        Target::Managed(target) => unified::show(model, target),
        Target::Column(column) => popup::sort_by(model, column),
        Target::Bytes { addr, bytes_per_cell } => point(model, addr, bytes_per_cell, column),
        Target::Entry(n) => {
            model.ui.demo_entry = n;
            return demo::start_entry(model);
        }
        Target::Help => model.ui.popup = Some(Popup::Help { scroll: 0 }),
        Target::Findings => {
            model.ui.popup = Some(Popup::Findings {
                chosen: None,
                scroll: 0,
            })
        }
        Target::Next => return demo::next(model),
    }
    vec![Effect::Draw]
}

fn drag(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    match model.ui.hits.at(mouse.x, mouse.y) {
        Some((Target::Bytes { addr, bytes_per_cell }, column)) if model.ui.popup.is_none() => {
            point(model, addr, bytes_per_cell, column);
            vec![Effect::Draw]
        }
        _ => Vec::new(),
    }
}

fn point(model: &mut Model, addr: u64, bytes_per_cell: u64, column: u16) {
    let addr = addr.saturating_add(bytes_per_cell.saturating_mul(u64::from(column)));
    match model.ui.view {
        View::Unified => model.ui.unified.cursor = Some(addr),
        _ => map::point_at(model, addr),
    }
}

fn wheel(model: &mut Model, by: isize) -> Vec<Effect> {
    if model.ui.popup.is_some() {
        return popup::wheel(model, by);
    }
    perform(model, model.ui.view.row().wheel[usize::from(by > 0)])
}
