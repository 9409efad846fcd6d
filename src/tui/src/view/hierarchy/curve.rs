//! The curve of latency over the size of the working set, with its steps named.

use gpumem_text::units::round_size;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;

use super::ink_of;
use super::ladder::short_ns;
use crate::model::{CurvePoint, Hierarchy, Rung};
use crate::view::Screen;
use crate::view::layout::clip;
use crate::view::theme::Ink;
use crate::view::widgets::PlainColumns;
use crate::wrap::width;

/// The levels that the curve steps through, in its order.
const STEPS: [Rung; 4] = [Rung::L1, Rung::L2Near, Rung::L2Far, Rung::Device];

/// Columns of the axis at the left.
const AXIS: u16 = 7;

/// Draws the panel.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, hierarchy: &Hierarchy) {
    if area.height < 4 {
        return;
    }
    let note = hierarchy.spread.map_or_else(String::new, |(least, _, most)| {
        format!("near L2 by SM: {least:.0} to {most:.0} ns")
    });
    let inside = screen.panel(area, "Latency by working set, random order", &note);
    let (Some(first), Some(last)) = (hierarchy.curve.first(), hierarchy.curve.last()) else {
        let text = Line::styled("It was not measured.", screen.theme.ink(Ink::Dim));
        return screen.render(text, inside);
    };
    let axis_lines = u16::from(inside.height > 2);
    let [graph, below] = Layout::vertical([Constraint::Fill(1), Constraint::Length(axis_lines)]).areas(inside);
    let axis = if inside.width >= 40 { AXIS } else { 0 };
    let [scale, cells] = Layout::horizontal([Constraint::Length(axis), Constraint::Fill(1)]).areas(graph);
    let most = hierarchy.curve.iter().map(|point| point.ns).fold(1.0, f64::max);
    // A line is left above the highest bar for its name.
    let top = most * f64::from(cells.height) / f64::from(cells.height.saturating_sub(1).max(1));
    let ends = (bits(first.bytes), bits(last.bytes));
    let places: Vec<f64> = (0..cells.width)
        .map(|x| ends.0 + (ends.1 - ends.0) * f64::from(x) / f64::from(cells.width.saturating_sub(1).max(1)))
        .collect();
    let columns: Vec<_> = places
        .iter()
        .filter_map(|at| at_size(&hierarchy.curve, *at))
        .map(|(ns, step)| (ink_of(STEPS[step]), ns / top))
        .collect();
    let widget = PlainColumns {
        theme: screen.theme,
        columns: &columns,
    };
    screen.render(widget, cells);
    name_steps(screen, cells, &hierarchy.curve, ends, top);
    let dim = screen.theme.ink(Ink::Dim);
    let text = Line::styled(format!("{} ", short_ns(most)), dim).right_aligned();
    let line = Rect {
        y: scale.y + u16::from(scale.height > 1),
        height: 1,
        ..scale
    };
    screen.render(text, line);
    let foot = Rect {
        y: scale.bottom().saturating_sub(1),
        height: 1,
        ..scale
    };
    screen.render(Line::styled("0 ", dim).right_aligned(), foot);
    let below = Rect {
        x: cells.x,
        width: cells.width,
        ..below
    };
    draw_sizes(screen, below, ends);
}

fn bits(bytes: u64) -> f64 {
    (bytes.max(1) as f64).log2()
}

/// Returns the latency at a size, given as its logarithm, and the step it belongs to: between two points along a line, and where no level
/// serves a size alone, the next one.
fn at_size(curve: &[CurvePoint], at: f64) -> Option<(f64, usize)> {
    let behind = curve.partition_point(|point| bits(point.bytes) < at);
    let after = curve.get(behind).or(curve.last())?;
    let before = curve.get(behind.saturating_sub(1)).unwrap_or(after);
    let (from, to) = (bits(before.bytes), bits(after.bytes));
    let share = if to > from {
        ((at - from) / (to - from)).clamp(0.0, 1.0)
    } else {
        1.0
    };
    let rung = curve[behind.min(curve.len() - 1)..].iter().find_map(|point| point.rung);
    let step = STEPS.iter().position(|step| Some(*step) == rung);
    let ns = before.ns + (after.ns - before.ns) * share;
    Some((ns, step.unwrap_or(STEPS.len() - 1)))
}

/// Writes the name and latency of each step above it.
fn name_steps(screen: &mut Screen<'_>, cells: Rect, curve: &[CurvePoint], (from, to): (f64, f64), top: f64) {
    let theme = screen.theme;
    // The line of the last name, and the first column behind it.
    let (mut last_y, mut free) = (cells.bottom(), cells.x);
    for rung in STEPS {
        let mut its = curve.iter().filter(|point| point.rung == Some(rung));
        let Some(first) = its.next() else { continue };
        let last = its.next_back().unwrap_or(first);
        let name = match rung {
            Rung::L1 => "L1",
            Rung::L2Near => "L2 near",
            Rung::L2Far => "L2 far",
            _ => "device",
        };
        let ns = (first.ns + last.ns) / 2.0;
        let column = |bytes: u64| {
            let share = (bits(bytes) - from) / (to - from).max(1e-9);
            cells.x + (share * f64::from(cells.width.saturating_sub(1))).round() as u16
        };
        let (begin, end) = (column(first.bytes), column(last.bytes) + 1);
        let height = (ns / top * f64::from(cells.height)).ceil() as u16;
        let y = cells.bottom().saturating_sub(height + 1).max(cells.y);
        // Where there is no room for both, the name is enough.
        let room = end.saturating_sub(if y == last_y { free } else { cells.x });
        let texts = [format!("{name} {}", short_ns(ns)), name.to_owned()];
        let Some(text) = texts.into_iter().find(|text| width(text) <= room) else {
            continue;
        };
        // Above the middle of the step, or if that is short above the lower ones before it: those after it are higher.
        let wide = width(&text);
        let x = (begin + end).saturating_sub(wide) / 2;
        let x = x.clamp(if y == last_y { free } else { cells.x }, end - wide);
        (last_y, free) = (y, x + wide + 1);
        screen.render(Line::styled(text, theme.ink(ink_of(rung))), Rect::new(x, y, wide, 1));
    }
}

/// Writes sizes below the curve.
fn draw_sizes(screen: &mut Screen<'_>, area: Rect, (from, to): (f64, f64)) {
    let dim = screen.theme.ink(Ink::Dim);
    let mut free = area.x;
    // Every other power of four, so that the labels have room.
    for power in (from.ceil() as u32..=to.floor() as u32).step_by(if area.width >= 60 { 2 } else { 4 }) {
        let share = (f64::from(power) - from) / (to - from).max(1e-9);
        let text = round_size(1 << power.min(62));
        let centre = area.x + (share * f64::from(area.width.saturating_sub(1))) as u16;
        let wide = width(&text);
        let x = centre.saturating_sub(wide / 2).max(area.x);
        if x >= free && x + wide <= area.right() {
            screen.render(
                Line::styled(clip(&text, wide), dim),
                Rect::new(x, area.y, wide, area.height),
            );
            free = x + wide + 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_is_a_line_between_points_and_names_the_next_step() {
        let point = |kib: u64, ns: f64, rung| CurvePoint {
            bytes: kib << 10,
            ns,
            rung,
        };
        let curve = [
            point(64, 16.0, Some(Rung::L1)),
            point(256, 80.0, None),
            point(1024, 140.0, Some(Rung::L2Near)),
        ];
        let at = |kib: f64| at_size(&curve, (kib * 1024.0).log2());
        assert_eq!(at(64.0), Some((16.0, 0)));
        assert_eq!(at(128.0), Some((48.0, 1)), "halfway in the logarithm");
        assert_eq!(at(1024.0), Some((140.0, 1)));
        // Beyond the ends it stays as it is there.
        assert_eq!(at(1.0).map(|(ns, _)| ns), Some(16.0));
        assert_eq!(at(9000.0).map(|(ns, _)| ns), Some(140.0));
        assert_eq!(at_size(&[], 1.0), None);
    }
}
