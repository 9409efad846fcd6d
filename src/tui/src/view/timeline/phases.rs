//! The program's own marks as bands: forward, backward, optimizer.

use std::collections::BTreeSet;
use std::sync::Arc;

use ratatui::layout::Rect;
use ratatui::style::Style;

use super::super::Screen;
use super::super::pen::width;
use super::super::theme::{Ink, Theme};
use super::Window;
use crate::model::{Colors, Device, MarkKind, TimelineUi};

/// Bands take these in the order of their names.
const INKS: [Ink; 4] = [Ink::Allocated, Ink::Pending, Ink::Good, Ink::Accent];
/// And these, in Unicode and in ASCII, where colours do not tell them apart.
const LINES: [(char, char); INKS.len()] = [('─', '-'), ('═', '='), ('┄', '.'), ('≈', '~')];

/// The line and the colours of the phase at a place in the order of names.
pub(super) fn look(theme: &Theme, index: usize) -> (char, Style) {
    let (unicode, ascii) = match theme.depth {
        Colors::Mono => LINES[index % LINES.len()],
        _ => LINES[0],
    };
    let line = if theme.ascii { ascii } else { unicode };
    (line, theme.ink(INKS[index % INKS.len()]))
}

/// A phase from its mark to the next one.
struct Band {
    name: Arc<str>,
    from: u16,
    to: u16,
}

/// Draws the bands, or says that they are too many to be told apart.
pub(super) fn lane(screen: &mut Screen<'_>, area: Rect, device: &Device, window: Window) {
    let (bands, marks) = bands(device, window);
    let dim = screen.pen.theme.ink(Ink::Dim);
    let names = names(device);
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
    for band in &bands {
        let index = names.iter().position(|n| *n == band.name).unwrap_or(0);
        let (line, style) = look(&screen.pen.theme, index);
        let room = band.to - band.from;
        // A mark of where it begins would be all that is seen of a single column.
        let begins = room > 1 || screen.pen.theme.depth != Colors::Mono;
        for x in band.from..band.to {
            let glyph = if x == band.from && begins { '╾' } else { line };
            screen.pen.cell(area, x, 0, glyph, style);
        }
        if room >= 2 {
            let name: String = band.name.chars().take(usize::from(room - 1)).collect();
            screen.pen.text(area, band.from + 1, 0, &name, style);
        }
    }
}

/// The names of the phases in their colours, for bands too short to hold them.
pub(super) fn legend(screen: &mut Screen<'_>, area: Rect, mut x: u16, device: &Device) {
    let dim = screen.pen.theme.ink(Ink::Dim);
    for (i, name) in names(device).iter().enumerate().take(INKS.len()) {
        if x + 2 + width(name) > area.width {
            return;
        }
        let (line, style) = look(&screen.pen.theme, i);
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
fn bands(device: &Device, window: Window) -> (Vec<Band>, usize) {
    let newest = device.history.long.back().map_or(0, |p| p.at);
    let end = window.column(newest).map_or(window.columns, |c| c + 1);
    let mut bands: Vec<Band> = vec![];
    let mut marks = 0;
    let mut before: Option<Arc<str>> = None;
    for mark in device.history.marks.iter().filter(|m| m.kind == MarkKind::Phase) {
        let Some(column) = window.column(mark.at) else {
            if mark.at < window.start(0) {
                before = Some(mark.text.clone());
            }
            continue;
        };
        marks += 1;
        if let Some(name) = before.take().filter(|_| column > 0) {
            bands.push(Band {
                name,
                from: 0,
                to: column,
            });
        }
        if let Some(last) = bands.last_mut() {
            last.to = column;
        }
        bands.push(Band {
            name: mark.text.clone(),
            from: column,
            to: end,
        });
    }
    if let Some(name) = before {
        bands.push(Band { name, from: 0, to: end });
    }
    bands.retain(|b| b.to > b.from);
    (bands, marks)
}
