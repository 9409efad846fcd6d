//! The parts of a device's memory by name, with their figures, in one line.

use ratatui::layout::Rect;
use ratatui::style::Style;

use super::bar;
use super::pen::{Pen, width};
use super::theme::Ink;

/// A part: its look, its name, its bytes, and when it leaves where there is no room for all (higher leaves sooner, 0 never does).
pub(super) type Entry = (Ink, &'static str, u64, u8);

/// In short a part is called as in the process table.
fn name(entry: &Entry, short: bool) -> &'static str {
    if short && entry.0 == Ink::Allocated {
        "alloc"
    } else {
        entry.1
    }
}

/// Draws as many entries as fit whole, with their figures as `text` has them and a unit behind the last; returns the column after
/// them. What holds most of the device matters most, and what is hardly anything least.
pub(super) fn draw(
    pen: &mut Pen<'_>,
    area: Rect,
    mut entries: Vec<Entry>,
    total: u64,
    (text, unit): (impl Fn(u64) -> String, &str),
) -> u16 {
    let wide = |entries: &[Entry], gap: u16, short: bool| {
        let each = entries
            .iter()
            .map(|e| 2 + width(name(e, short)) + 1 + width(&text(e.2)) + gap);
        each.sum::<u16>() + width(unit)
    };
    let gap = if wide(&entries, 3, false) <= area.width { 3 } else { 2 };
    // There is no gap behind the last.
    let fits = |entries: &[Entry], short| wide(entries, gap, short) <= area.width.saturating_add(gap);
    let (mut short, mut whole) = (false, true);
    while entries.len() > 1 && !fits(&entries, false) {
        let little = |e: &Entry| e.3 > 0 && e.2 < total / 50;
        // A bar that is mostly of one colour says nothing without its name.
        let rank = |e: &Entry| (little(e), e.3 > 0, e.2 <= total / 2, e.3);
        let leaver = (0..entries.len()).max_by_key(|&i| rank(&entries[i])).unwrap_or(0);
        // A shorter word keeps all but what is little, or is not worth it.
        short = whole && fits(&entries, true);
        if short {
            break;
        }
        whole &= little(&entries[leaver]);
        entries.remove(leaver);
    }
    let mut x = 0;
    let last = entries.len().saturating_sub(1);
    for (i, entry) in entries.iter().enumerate() {
        let label = name(entry, short);
        let unit = if i == last { unit } else { "" };
        let figure = format!("{}{unit}", text(entry.2));
        if x + 2 + width(label) + 1 + width(&figure) > area.width {
            break;
        }
        bar::swatch(pen, area, x, 0, entry.0);
        x = pen.text(area, x + 2, 0, label, pen.theme.ink(Ink::Dim));
        x = pen.text(area, x + 1, 0, &figure, Style::new()) + gap;
    }
    x
}
