//! The phases that a program marks, as bands: forward, backward, optimizer.

use std::collections::BTreeSet;
use std::sync::Arc;

use ratatui::layout::Rect;
use ratatui::text::Span;

use super::Window;
use crate::model::{Device, Looks, Mark, MarkKind, PHASE_LOOKS, TimelineUi};
use crate::view::Screen;
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::{PhaseBand, PhaseStrip, phase_look};
use crate::wrap::{cut, width};

/// Draws the bands, or a note that they are too many to tell apart.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, device: &Device, window: Window) {
    let theme = screen.theme;
    let names = names(device, &screen.model.looks);
    let (bands, marks) = bands(device, window, &names);
    if marks > usize::from(window.columns) / 3 {
        let names: Vec<&str> = names.iter().take(5).map(|(_, name)| &**name).collect();
        let shortest = screen.model.ui.timeline.span <= TimelineUi::SPANS[0];
        let text = format!(
            "{}too many phases to tell apart ({})",
            if shortest { "" } else { "+ shows less time: " },
            names.join(", ")
        );
        let text = cut(&text, area.width, "…");
        screen.render(Span::styled(text, theme.ink(Ink::Dim)), area);
        return;
    }
    let bands = &bands[..];
    screen.render(PhaseStrip { theme, bands }, area);
}

/// Returns the names of the phases in their colours, as far as they fit. Bands may be too short for their names.
pub(super) fn legend(theme: &Theme, device: &Device, looks: &Looks, room: u16) -> Vec<Span<'static>> {
    let mut spans = vec![];
    let mut x = 0;
    for (look, name) in names(device, looks).iter().take(PHASE_LOOKS.into()) {
        let end = x + 2 + width(name);
        if end > room {
            break;
        }
        let (line, style) = phase_look(theme, *look);
        let line = if line == '─' { '━' } else { line };
        spans.extend([
            Span::styled(line.to_string(), style),
            Span::raw(" "),
            Span::styled(name.to_string(), theme.ink(Ink::Dim)),
            Span::raw("   "),
        ]);
        x = end + 3;
    }
    spans
}

/// Returns the phases of the history, each with the number that its look depends on, in the order of these.
fn names(device: &Device, looks: &Looks) -> Vec<(usize, Arc<str>)> {
    let marks = device.history.marks.iter().filter(|m| m.kind == MarkKind::Phase);
    let names: BTreeSet<&Arc<str>> = marks.map(|m| &m.text).collect();
    let number = |(place, name): (usize, &Arc<str>)| (looks.phases.of(name).map_or(place, usize::from), name.clone());
    let mut names: Vec<_> = names.into_iter().enumerate().map(number).collect();
    names.sort();
    names
}

/// Returns the bands of the window, and the number of marks they were made from.
fn bands(device: &Device, window: Window, names: &[(usize, Arc<str>)]) -> (Vec<PhaseBand>, usize) {
    let newest = device.history.long.back().map_or(0, |p| p.at);
    let end = window.column(newest).map_or(window.columns, |c| c + 1);
    let band = |mark: &Mark, columns| PhaseBand {
        name: match mark.number {
            0 => mark.text.clone(),
            number => format!("{} {number}", mark.text).into(),
        },
        index: names
            .iter()
            .find(|(_, name)| *name == mark.text)
            .map_or(0, |known| known.0),
        columns,
    };
    let mut bands: Vec<PhaseBand> = vec![];
    let mut marks = 0;
    let mut before: Option<&Mark> = None;
    for mark in device.history.marks.iter().filter(|m| m.kind == MarkKind::Phase) {
        let Some(column) = window.column(mark.at) else {
            if mark.at < window.start(0) {
                before = Some(mark);
            }
            continue;
        };
        marks += 1;
        if let Some(before) = before.take().filter(|_| column > 0) {
            bands.push(band(before, 0..column));
        }
        if let Some(last) = bands.last_mut() {
            last.columns.end = column;
        }
        bands.push(band(mark, column..end));
    }
    bands.extend(before.map(|mark| band(mark, 0..end)));
    bands.retain(|b| !b.columns.is_empty());
    (bands, marks)
}
