//! The popup of findings: chooses one, goes to the view that shows more of it, dismisses it.

use crate::event::Effect;
use crate::model::{About, Model, Popup, View};

use super::{overview, triage, unified};

/// Moves the choice by findings, or the text where the chosen one does not fit. `lines` are the first line of each finding and the one
/// after its last, and the lines that fit.
pub(super) fn select(lines: &(Vec<(u16, u16)>, u16), (selected, scroll): (&mut usize, &mut u16), by: isize) {
    let (spans, fits) = lines;
    let Some(last) = spans.len().checked_sub(1) else { return };
    *selected = (*selected).min(last);
    let (begin, end) = spans[*selected];
    match by {
        1 if end > scroll.saturating_add(*fits) => {
            *scroll += 1;
            return;
        }
        -1 if begin < *scroll => {
            *scroll -= 1;
            return;
        }
        // A page is about as many findings as fit.
        1 | -1 => *selected = selected.saturating_add_signed(by).min(last),
        _ => {
            let page = (spans.len() * usize::from(*fits) / usize::from(spans[last].1.max(1))).max(1);
            *selected = match by {
                isize::MIN => 0,
                isize::MAX => last,
                _ => selected.saturating_add_signed(by.signum() * page as isize).min(last),
            };
        }
    }
    let (begin, end) = spans[*selected];
    *scroll = (*scroll).min(begin).max(end.saturating_sub(*fits).min(begin));
}

/// Goes to the view that shows more of a finding.
pub(super) fn open(model: &mut Model, selected: usize) -> Vec<Effect> {
    let Some((about, process)) = model
        .findings()
        .nth(selected)
        .map(|finding| (finding.about, finding.process))
    else {
        return vec![Effect::Draw];
    };
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
    let Some(Popup::Findings { selected, .. }) = model.ui.popup else {
        return Vec::new();
    };
    let found = model
        .findings()
        .nth(selected)
        .map(|finding| (finding.key(), finding.severity));
    if let Some((key, severity)) = found {
        model.ui.dismissed.insert(key, severity);
    }
    let last = model.findings().count().saturating_sub(1);
    if let Some(Popup::Findings { selected, .. }) = &mut model.ui.popup {
        *selected = (*selected).min(last);
    }
    vec![Effect::Draw]
}
