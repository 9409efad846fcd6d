//! Handles keys and clicks in a popup.

use crate::event::{Effect, Key};
use crate::model::{Action, Column, Model, Popup, Sort};

use super::{attach, chosen as findings, demo, hierarchy, keys, overview, ranks, relist};

/// A move of the selection or of the text.
enum Move {
    By(isize),
    First,
    Last,
}

/// Handles a key while a popup is open.
pub(super) fn press(model: &mut Model, key: Key) -> Vec<Effect> {
    // A popup that has to scroll covers the whole screen, less two lines of its frame. A page keeps one line.
    let page = model.ui.term.height.saturating_sub(3).max(1) as isize;
    let movement = match key {
        Key::Up | Key::Char('k') => Move::By(-1),
        Key::Down | Key::Char('j') => Move::By(1),
        Key::PageUp => Move::By(-page),
        Key::PageDown => Move::By(page),
        Key::Home | Key::Char('g') => Move::First,
        Key::End | Key::Char('G') => Move::Last,
        Key::Enter => return accept(model),
        Key::Char(' ') => return keys::pause(model),
        Key::Esc | Key::Char('q') => return close(model),
        Key::Char('r') if matches!(model.ui.popup, Some(Popup::Measure | Popup::Ranks)) => return close(model),
        Key::Char('?') if matches!(model.ui.popup, Some(Popup::Help { .. })) => return close(model),
        Key::Char('d') if matches!(model.ui.popup, Some(Popup::Findings { .. })) => return findings::dismiss(model),
        Key::Char('m') if matches!(model.ui.popup, Some(Popup::Findings { .. })) => return close(model),
        Key::Char('a') if matches!(model.ui.popup, Some(Popup::Attach { .. })) => return close(model),
        Key::Char('s') if matches!(model.ui.popup, Some(Popup::Sort { .. })) => return close(model),
        Key::Char('e') if matches!(model.ui.popup, Some(Popup::Explain { .. })) => return close(model),
        Key::Char('f') if matches!(model.ui.popup, Some(Popup::Fix { .. })) => return close(model),
        // Ranks have numbers of their own.
        Key::Char('1'..='9') if model.ui.popup == Some(Popup::Ranks) => return Vec::new(),
        Key::Char(c @ '1'..='9') => return pick(model, c as usize - '1' as usize),
        _ => return Vec::new(),
    };
    shift(model, &movement);
    vec![Effect::Draw]
}

/// Chooses entry `n`, by number or click.
pub(super) fn pick(model: &mut Model, n: usize) -> Vec<Effect> {
    let last = last_entry(model);
    match &mut model.ui.popup {
        Some(Popup::Sort { selected } | Popup::Fix { selected }) if n <= last => *selected = n,
        Some(Popup::Ranks) => {
            ranks::select(model, |_, last| n.min(last));
            return vec![Effect::Draw];
        }
        _ => return Vec::new(),
    }
    accept(model)
}

/// Moves the selection or the text by the wheel.
pub(super) fn wheel(model: &mut Model, by: isize) -> Vec<Effect> {
    shift(model, &Move::By(by));
    vec![Effect::Draw]
}

/// Closes the popup without choosing anything.
pub(super) fn close(model: &mut Model) -> Vec<Effect> {
    model.ui.popup = None;
    vec![Effect::Draw]
}

fn accept(model: &mut Model) -> Vec<Effect> {
    match model.ui.popup.take() {
        Some(Popup::Sort { selected }) => {
            if let Some(&column) = Column::ALL.get(selected) {
                sort_by(model, column);
            }
            vec![Effect::Draw]
        }
        Some(Popup::Fix { selected }) => demo::fix(model, selected),
        Some(Popup::Measure) => hierarchy::start(model),
        Some(Popup::Attach { pid }) => attach::start(model, pid),
        Some(Popup::Ranks) => overview::act(model, Action::Enter).unwrap_or_default(),
        Some(Popup::Findings { chosen, .. }) => findings::open(model, chosen.as_ref()),
        Some(Popup::Help { .. } | Popup::Explain { .. }) | None => vec![Effect::Draw],
    }
}

/// Sorts by a column, or reverses the order if it is sorted by that column already.
pub(super) fn sort_by(model: &mut Model, column: Column) {
    let same = model.order() == column;
    model.ui.sort = Sort {
        column,
        descending: if same {
            !model.ui.sort.descending
        } else {
            column.descends()
        },
    };
    relist(model);
}

fn shift(model: &mut Model, movement: &Move) {
    let moved = |at: usize, last: usize| match movement {
        Move::By(by) => at.saturating_add_signed(*by).min(last),
        Move::First => 0,
        Move::Last => last,
    };
    if model.ui.popup == Some(Popup::Ranks) {
        return ranks::select(model, moved);
    }
    if let Some(Popup::Findings { .. }) = model.ui.popup {
        return findings::shift(
            model,
            match movement {
                Move::By(by) => *by,
                Move::First => isize::MIN,
                Move::Last => isize::MAX,
            },
        );
    }
    let last = last_entry(model);
    let moved = |at: usize| moved(at, last);
    match &mut model.ui.popup {
        Some(Popup::Help { scroll } | Popup::Explain { scroll }) => {
            *scroll = moved(usize::from(*scroll)).min(usize::from(u16::MAX)) as u16
        }
        Some(Popup::Sort { selected } | Popup::Fix { selected }) => *selected = moved(*selected),
        Some(Popup::Measure | Popup::Attach { .. } | Popup::Ranks | Popup::Findings { .. }) | None => {}
    }
}

fn last_entry(model: &Model) -> usize {
    match &model.ui.popup {
        Some(Popup::Help { .. } | Popup::Explain { .. }) => usize::from(model.ui.hits.popup_lines.saturating_sub(1)),
        Some(Popup::Sort { .. }) => Column::ALL.len() - 1,
        Some(Popup::Fix { .. }) => model.demo.as_ref().map_or(0, |d| d.choices.len().saturating_sub(1)),
        Some(Popup::Measure | Popup::Attach { .. } | Popup::Ranks | Popup::Findings { .. }) | None => 0,
    }
}
