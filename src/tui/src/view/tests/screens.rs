//! Snapshots of every screen as text at three sizes and in ASCII, and of the colours.

use std::fmt::Write as _;

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use super::fixture;
use super::gallery::drawn;
use crate::model::*;

pub(super) fn text(buffer: &Buffer) -> String {
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let line: String = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect();
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

fn letter(i: usize) -> char {
    char::from(b".abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"[i])
}

/// Returns the style of every cell as a letter, with a legend. `.` is the terminal's own style.
fn styles(buffer: &Buffer) -> String {
    let mut known: Vec<Style> = vec![Style::reset()];
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        for x in 0..buffer.area.width {
            let cell = &buffer[(x, y)];
            // A blank shows only its background.
            let shown = if cell.symbol() == " " {
                Style::reset().bg(cell.bg).add_modifier(cell.modifier)
            } else {
                cell.style()
            };
            let place = known
                .iter()
                .position(|s| (s.fg, s.bg, s.add_modifier) == (shown.fg, shown.bg, shown.add_modifier));
            let place = place.unwrap_or_else(|| {
                known.push(shown);
                known.len() - 1
            });
            line.push(letter(place));
        }
        let _ = writeln!(out, "{}", line.trim_end_matches('.'));
    }
    for (i, style) in known.iter().enumerate().skip(1) {
        let i = letter(i);
        let _ = writeln!(
            out,
            "{i}: {:?} on {:?} {:?}",
            style.fg.unwrap_or_default(),
            style.bg.unwrap_or_default(),
            style.add_modifier
        );
    }
    out
}

#[test]
fn screens() {
    for (name, model) in fixture::screens() {
        let mut all = String::new();
        for (width, height) in [(80, 24), (120, 40), (20, 5)] {
            let (buffer, _) = drawn(model.clone(), width, height, Colors::Mono, false);
            let _ = writeln!(all, "--- {width}x{height}\n{}", text(&buffer));
        }
        insta::assert_snapshot!(name, all);
    }
}

#[test]
fn screens_in_ascii() {
    for name in [
        "overview",
        "blocks",
        "timeline",
        "timeline-tags",
        "unified-causes",
        "demo",
    ] {
        let (_, model) = fixture::screens().into_iter().find(|(n, _)| *n == name).unwrap();
        let (buffer, _) = drawn(model, 80, 24, Colors::Mono, true);
        insta::assert_snapshot!(format!("{name}-ascii"), text(&buffer));
    }
}

#[test]
fn colours_of_screens() {
    for name in ["overview", "blocks", "overview-several", "timeline-tags", "unified"] {
        let (_, model) = fixture::screens().into_iter().find(|(n, _)| *n == name).unwrap();
        for (depth, colors) in [("true", Colors::True), ("256", Colors::Ansi256), ("16", Colors::Ansi16)] {
            let (buffer, _) = drawn(model.clone(), 80, 24, colors, false);
            insta::assert_snapshot!(format!("{name}-{depth}"), styles(&buffer));
        }
    }
}
