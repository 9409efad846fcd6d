//! The popup of findings: chooses one, goes to the view that shows more of it, dismisses it.

use crate::event::Effect;
use crate::model::{About, Finding, FindingKey, Model, Popup, SECOND, TimelineUi, View};

use super::{overview, timeline, triage, unified};

/// Moves the choice by findings, or the text where the chosen one does not fit.
pub(super) fn shift(model: &mut Model, by: isize) {
    let Some(Popup::Findings { chosen, scroll }) = &model.ui.popup else {
        return;
    };
    let place = model.chosen_finding(chosen.as_ref());
    let (place, scroll) = moved(&model.ui.hits.finding_lines, (place, *scroll), by);
    let chosen = model.findings().nth(place).map(Finding::key);
    model.ui.popup = Some(Popup::Findings { chosen, scroll });
}

/// Returns the place and the scroll after a move. `lines` are the first line of each finding and the one after its last, and the lines
/// that fit.
fn moved((spans, fits): &(Vec<(u16, u16)>, u16), (place, scroll): (usize, u16), by: isize) -> (usize, u16) {
    let Some(last) = spans.len().checked_sub(1) else {
        return (0, 0);
    };
    let place = place.min(last);
    let (begin, end) = spans[place];
    // A page is about as many findings as fit.
    let page = (spans.len() * usize::from(*fits) / usize::from(spans[last].1.max(1))).max(1) as isize;
    let place = match by {
        1 if end > scroll.saturating_add(*fits) => return (place, scroll + 1),
        -1 if begin < scroll => return (place, scroll - 1),
        isize::MIN => 0,
        isize::MAX => last,
        1 | -1 => place.saturating_add_signed(by).min(last),
        _ => place.saturating_add_signed(by.signum() * page).min(last),
    };
    let (begin, end) = spans[place];
    (place, scroll.min(begin).max(end.saturating_sub(*fits).min(begin)))
}

/// Goes to the view that shows more of a finding.
pub(super) fn open(model: &mut Model, chosen: Option<&FindingKey>) -> Vec<Effect> {
    let found = model.findings().nth(model.chosen_finding(chosen));
    let Some((about, process)) = found.map(|finding| (finding.about, finding.process)) else {
        return vec![Effect::Draw];
    };
    if about == About::Older {
        model.ui.unfolded = true;
        let world = model.world();
        let first = world.findings.len().saturating_sub(world.older.0);
        let chosen = world.findings.get(first).map(Finding::key);
        model.ui.popup = Some(Popup::Findings { chosen, scroll: 0 });
        return vec![Effect::Draw];
    }
    if let Some(id) = process {
        overview::select_process(model, Some(id));
    }
    match about.view() {
        View::Triage => {
            model.ui.triage.pasted = None;
            triage::open(model);
        }
        View::Unified => {
            let pid = model.selected_process().map(|process| process.pid);
            let target = model
                .world()
                .managed
                .with_memory()
                .map(|(target, ..)| *target)
                .find(|target| Some(target.pid) == pid);
            model.ui.view = View::Unified;
            if let Some(target) = target {
                unified::show(model, target);
            }
        }
        View::Timeline => {
            let ended = model.selected_process().and_then(|process| process.ended);
            timeline::open_at(model, ended.map(|ended| ended.at).filter(|_| about == About::End));
            if about == About::Growth {
                model.ui.timeline.span = *TimelineUi::SPANS.last().unwrap_or(&SECOND);
            }
        }
        View::Blocks if !overview::has_blocks(model) => model.ui.view = View::Overview,
        view => model.ui.view = view,
    }
    if about == About::Cache && model.ui.view == View::Blocks {
        model.ui.blocks.cursor = largest_hole(model);
    }
    vec![Effect::Draw]
}

/// Returns the address of the largest free block of the map.
fn largest_hole(model: &Model) -> Option<u64> {
    let map = model.map.as_ref()?;
    let blocks = map.segments.iter().flat_map(|segment| &segment.blocks);
    let free = blocks.filter(|block| block.state == gpumem_channel::BlockState::Free);
    free.max_by_key(|block| block.size).map(|block| block.addr)
}

/// Leaves a finding out until it becomes worse.
pub(super) fn dismiss(model: &mut Model) -> Vec<Effect> {
    let Some(Popup::Findings { chosen, scroll }) = &model.ui.popup else {
        return Vec::new();
    };
    let (place, scroll) = (model.chosen_finding(chosen.as_ref()), *scroll);
    let found = model.findings().nth(place);
    if let Some((key, severity)) = found.map(|finding| (finding.key(), finding.severity)) {
        model.ui.dismissed.insert(key, severity);
    }
    // The next one is chosen, or the last one.
    let last = model.findings().count().saturating_sub(1);
    let chosen = model.findings().nth(place.min(last)).map(Finding::key);
    model.ui.popup = Some(Popup::Findings { chosen, scroll });
    vec![Effect::Draw]
}
