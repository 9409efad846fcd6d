//! The ladder: a level a line, with its figures and a bar whose length is the logarithm of its latency.

use gpumem_text::units::{self, bytes_short, nanoseconds};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::explain::caption;
use super::ink_of;
use crate::model::{Hierarchy, HierarchyLevel, Target};
use crate::view::Screen;
use crate::view::layout::clip;
use crate::view::theme::Ink;
use crate::view::widgets::PlainBar;

/// The ends of the axis, as powers of ten of a nanosecond: 1 ns to 100 µs.
const DECADES: u32 = 5;
/// The names of their beginnings.
const TICKS: [&str; DECADES as usize] = ["1 ns", "10 ns", "100 ns", "1 µs", "10 µs"];

/// Columns of the figures before the bar, each with the gap behind it: name, size, cycles, nanoseconds, bandwidth.
const COLUMNS: [u16; 5] = [15, 16, 9, 9, 11];
/// The least columns of a bar.
const BAR: u16 = 16;

/// Returns which figures fit beside a bar, the most important first: name, nanoseconds, cycles, bandwidth, size.
fn shown(width: u16) -> [bool; 5] {
    let mut shown = [false; 5];
    let mut left = width.saturating_sub(BAR);
    for column in [0, 3, 2, 4, 1] {
        if COLUMNS[column] > left {
            break;
        }
        left -= COLUMNS[column];
        shown[column] = true;
    }
    // A name alone needs no bar.
    shown[0] = true;
    shown
}

/// Draws the levels and the axis below them.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, hierarchy: &Hierarchy, selected: usize) {
    let count = hierarchy.levels.len() as u16;
    if count == 0 || area.is_empty() {
        return;
    }
    let shown = shown(area.width);
    let axis = u16::from(area.height > count);
    let lines = ((area.height - axis) / count).clamp(1, 3);
    // Where they do not all fit, the selected one is in view.
    let room = usize::from((area.height - axis) / lines);
    let first = (selected + 1).saturating_sub(room);
    let figures = COLUMNS
        .iter()
        .zip(shown)
        .filter_map(|(columns, shown)| shown.then_some(*columns))
        .sum::<u16>()
        .min(area.width);
    for (n, level) in hierarchy.levels.iter().enumerate().skip(first).take(room) {
        let line = Rect {
            y: area.y + (n - first) as u16 * lines,
            height: lines.min(area.bottom() - area.y),
            ..area
        };
        screen.hit(line, Target::Level(n));
        row(screen, line, level, (figures, shown), n == selected);
    }
    if axis > 0 {
        let at = Rect {
            x: area.x + figures,
            y: area.y + (hierarchy.levels.len().min(room) as u16) * lines,
            width: area.width - figures,
            height: 1,
        };
        draw_axis(screen, at);
    }
}

fn row(screen: &mut Screen<'_>, area: Rect, level: &HierarchyLevel, (figures, shown): (u16, [bool; 5]), chosen: bool) {
    let theme = screen.theme;
    let dim = theme.ink(Ink::Dim);
    let strong = theme.ink(Ink::Strong);
    let size = level.bytes_per_sm.map_or_else(
        || level.bytes.map_or_else(String::new, bytes_short),
        |per_sm| format!("{}/SM", bytes_short(per_sm)),
    );
    let latency = level.latency.as_ref();
    let texts = [
        (level.name.clone(), if chosen { theme.selected() } else { strong }),
        (size, dim),
        (
            latency.map_or_else(String::new, |l| format!("{:.0} cyc", l.cycles)),
            Style::new(),
        ),
        (level.ns().map_or_else(|| "-".to_owned(), short_ns), strong),
        (level.bandwidth().map_or_else(String::new, short_rate), Style::new()),
    ];
    let mut x = area.x;
    for (n, ((text, style), columns)) in texts.into_iter().zip(COLUMNS).enumerate() {
        if !shown[n] {
            continue;
        }
        let cell = Rect {
            x,
            width: columns.min(area.right().saturating_sub(x)),
            height: 1,
            ..area
        };
        let text = clip(&text, cell.width.saturating_sub(1));
        let line = match n {
            0 if chosen => Line::styled(format!("{text:<0$}", usize::from(columns) - 1), style),
            0 => Line::styled(text, style),
            _ => Line::from_iter([Span::styled(text, style), Span::raw(" ")]).right_aligned(),
        };
        screen.render(line, cell);
        x += columns;
    }
    let bar = Rect {
        x: area.x + figures,
        width: area.width - figures,
        ..area
    };
    if let Some(ns) = level.ns() {
        draw_bar(screen, bar, level, ns);
    }
    if area.height > 1 {
        let below = Rect {
            y: area.y + 1,
            height: 1,
            width: figures.saturating_sub(1),
            ..area
        };
        let line = Line::styled(clip(&format!("  {}", caption(level.rung)), below.width), dim);
        screen.render(line, below);
    }
}

/// Draws a bar from the left edge to the latency. A latency that was only published is drawn as a mark.
fn draw_bar(screen: &mut Screen<'_>, area: Rect, level: &HierarchyLevel, ns: f64) {
    let theme = screen.theme;
    let ink = ink_of(level.rung);
    let share = (ns.max(1.0).log10() / f64::from(DECADES)).clamp(0.0, 1.0);
    let cells = share * f64::from(area.width);
    if level.latency.is_none() {
        let x = area.x + (cells as u16).min(area.width.saturating_sub(1));
        let mark = Rect::new(x, area.y, 1, 1);
        screen.render(Span::styled(if theme.ascii { "|" } else { "┊" }, theme.ink(ink)), mark);
        return;
    }
    // A blank line keeps thick bars apart.
    let height = area.height.saturating_sub(1).max(1);
    let bar = PlainBar { theme, ink, share };
    screen.render(bar, Rect { height, ..area });
}

/// Draws the decades below the bars.
fn draw_axis(screen: &mut Screen<'_>, area: Rect) {
    let dim = screen.theme.ink(Ink::Dim);
    let parts = [Constraint::Fill(1); DECADES as usize];
    let decades: [Rect; DECADES as usize] = Layout::horizontal(parts).areas(area);
    // Where there is little room, only some decades have their names.
    let every = usize::from(9u16.div_ceil(decades[DECADES as usize - 1].width.max(1)));
    for (n, decade) in decades.into_iter().enumerate().step_by(every) {
        let tick = if screen.theme.ascii { "|" } else { "╵" };
        let room = decade.width.saturating_mul(every as u16).min(area.right() - decade.x);
        let text = match room {
            7.. => format!("{tick}{}", TICKS[n]),
            _ => tick.to_owned(),
        };
        let place = Rect { width: room, ..decade };
        screen.render(Line::styled(clip(&text, room), dim), place);
    }
}

/// Formats a latency in at most seven columns: `2.1 ns`, `332 ns`, `1.2 µs`.
pub(super) fn short_ns(ns: f64) -> String {
    match ns {
        ..100.0 => nanoseconds(ns),
        100.0..1000.0 => format!("{ns:.0} ns"),
        1e3..1e6 => format!("{} µs", units::decimals(ns / 1e3, 1)),
        _ => format!("{} ms", units::decimals(ns / 1e6, 1)),
    }
}

/// Formats a bandwidth in GB/s: `55.2 GB/s`, `4.43 TB/s`.
pub(super) fn short_rate(gb_per_s: f64) -> String {
    match gb_per_s {
        ..1000.0 => format!("{} GB/s", units::decimals(gb_per_s, 1)),
        _ => format!("{} TB/s", units::decimals(gb_per_s / 1e3, 1)),
    }
}
