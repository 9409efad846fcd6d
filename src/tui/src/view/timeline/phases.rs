//! The program's own marks as bands: forward, backward, optimizer.

use std::collections::BTreeSet;
use std::sync::Arc;

use ratatui::layout::Rect;

use super::super::Screen;
use super::super::pen::width;
use super::super::theme::Ink;
use super::Window;
use crate::model::{Device, MarkKind, TimelineUi};
use crate::view::widgets::{PHASE_LOOKS, PhaseBand, PhaseStrip, phase_look};

/// Draws the bands, or says that they are too many to be told apart.
pub(super) fn lane(screen: &mut Screen<'_>, area: Rect, device: &Device, window: Window) {
    let dim = screen.pen.theme.ink(Ink::Dim);
    let names = names(device);
    let (bands, marks) = bands(device, window, &names);
    if marks > usize::from(window.columns) / 3 {
        let names: Vec<&str> = names.iter().take(5).map(|n| &**n).collect();
        let shortest = screen.model.ui.timeline.span <= TimelineUi::SPANS[0];
        let text = format!(
            "{}too many phases to tell apart ({})",
            if shortest { "" } else { "+ shows less time: " },
            names.join(", ")
        );
        screen.pen.clipped(area, 0, 0, &text, area.width, dim);
        return;
    }
    let (theme, bands) = (screen.pen.theme, &bands[..]);
    screen.render(PhaseStrip { theme, bands }, area);
}

/// The names of the phases in their colours, for bands too short to hold them.
pub(super) fn legend(screen: &mut Screen<'_>, area: Rect, mut x: u16, device: &Device) {
    let dim = screen.pen.theme.ink(Ink::Dim);
    for (i, name) in names(device).iter().enumerate().take(PHASE_LOOKS) {
        if x + 2 + width(name) > area.width {
            return;
        }
        let (line, style) = phase_look(&screen.pen.theme, i);
        screen.pen.cell(area, x, 0, if line == '─' { '━' } else { line }, style);
        x = screen.pen.text(area, x + 2, 0, name, dim) + 3;
    }
}

/// The names of all phases of the past, in order: a band keeps its colour while the window moves.
fn names(device: &Device) -> Vec<Arc<str>> {
    let marks = device.history.marks.iter().filter(|m| m.kind == MarkKind::Phase);
    let names: BTreeSet<&Arc<str>> = marks.map(|m| &m.text).collect();
    names.into_iter().cloned().collect()
}

/// The bands of the window and how many marks made them.
fn bands(device: &Device, window: Window, names: &[Arc<str>]) -> (Vec<PhaseBand>, usize) {
    let newest = device.history.long.back().map_or(0, |p| p.at);
    let end = window.column(newest).map_or(window.columns, |c| c + 1);
    let band = |name: &Arc<str>, columns| PhaseBand {
        name: name.clone(),
        index: names.iter().position(|n| n == name).unwrap_or(0),
        columns,
    };
    let mut bands: Vec<PhaseBand> = vec![];
    let mut marks = 0;
    let mut before: Option<&Arc<str>> = None;
    for mark in device.history.marks.iter().filter(|m| m.kind == MarkKind::Phase) {
        let Some(column) = window.column(mark.at) else {
            if mark.at < window.start(0) {
                before = Some(&mark.text);
            }
            continue;
        };
        marks += 1;
        if let Some(name) = before.take().filter(|_| column > 0) {
            bands.push(band(name, 0..column));
        }
        if let Some(last) = bands.last_mut() {
            last.columns.end = column;
        }
        bands.push(band(&mark.text, column..end));
    }
    bands.extend(before.map(|name| band(name, 0..end)));
    bands.retain(|b| !b.columns.is_empty());
    (bands, marks)
}
