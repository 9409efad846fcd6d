//! The axes of a timeline: bytes at the left, time below.

use gpumem_text::units;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use crate::model::{Nanos, SECOND};
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::ceiling;
use crate::wrap::width;

/// Columns of the axis of bytes: `79.6G` and a tick.
const AXIS: u16 = 8;
/// The narrowest chart that has an axis of bytes.
const LABELLED: u16 = 40;
/// The narrowest axis of time.
const LEAST_TIME: u16 = 20;

/// Splits a chart into the axis of bytes and the plot at its right.
pub(super) fn split(chart: Rect) -> [Rect; 2] {
    let axis = if chart.width >= LABELLED { AXIS } else { 0 };
    Layout::horizontal([Constraint::Length(axis), Constraint::Min(0)]).areas(chart)
}

/// Returns the bytes at the top of an axis that leaves out the memory of others, in which what is left may be little of a
/// device: a round figure above the most that is shown.
pub(super) fn top_above(most: u64, total: u64) -> u64 {
    if most == 0 {
        return total.max(1);
    }
    ceiling(most.saturating_add(most / 16)).min(total.max(1)).max(1)
}

/// Returns the figures of an axis with their lines, from the top down: its end, and round figures below it, at least two lines
/// apart. A figure stands on the line whose upper edge is at its height; 0 stands on the last line.
fn ticks(top: u64, height: u16) -> Vec<(u64, u16)> {
    let parts = if height >= 12 { 3 } else { 2 };
    let step = 1 << (top / parts).max(1).ilog2();
    let line = |bytes: u64| {
        let below = u128::from(height) * u128::from(top - bytes) / u128::from(top.max(1));
        (below as u16).min(height.saturating_sub(1))
    };
    let mut ticks = vec![(top, 0)];
    for bytes in (1..=top / step).rev().map(|n| n * step).filter(|&bytes| bytes < top) {
        let line = line(bytes);
        if line + 1 < height && ticks.last().is_some_and(|last| last.1 + 2 <= line) {
            ticks.push((bytes, line));
        }
    }
    ticks.push((0, height.saturating_sub(1)));
    ticks
}

/// Grid lines across a chart, at its end and at round figures. Wide charts have the bytes of each line at the left.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryAxis {
    /// Colours and glyphs.
    pub(super) theme: Theme,
    /// Bytes at the chart's top.
    pub(super) top: u64,
}

impl Widget for MemoryAxis {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        if area.is_empty() {
            return;
        }
        let [axis, plot] = split(area);
        let dim = self.theme.ink(Ink::Dim);
        for (bytes, line) in ticks(self.top, area.height) {
            let y = area.y + line;
            let label = units::bytes_short(bytes);
            let spans = [Span::styled(label, dim), Span::raw(" "), Span::styled("┤", dim)];
            let [axis, plot] = [axis, plot].map(|area| Rect { y, height: 1, ..area });
            Line::from_iter(spans).right_aligned().render(axis, buf);
            if bytes > 0 {
                Span::styled("┈".repeat(plot.width.into()), dim).render(plot, buf);
            }
        }
    }
}

/// Returns the number of steps that divide a span into round times.
fn time_steps(span: Nanos, columns: u16) -> u64 {
    const ROUND: [u64; 9] = [1, 2, 3, 5, 10, 15, 30, 60, 120];
    if columns < 60 {
        return 2;
    }
    let round = |&steps: &u64| ROUND.iter().any(|seconds| seconds * steps * SECOND == span);
    [4, 5].into_iter().find(round).unwrap_or(4)
}

/// The age of a chart's columns, in one line. A narrow axis stays blank.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeAxis<'a> {
    /// Colours and glyphs.
    pub(super) theme: Theme,
    /// The time from the left edge to the right.
    pub(super) span: Nanos,
    /// The time between the right edge and the newest figures.
    pub(super) back: Nanos,
    /// The age of the newest figures as text.
    pub(super) newest: &'a str,
}

impl Widget for TimeAxis<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        if area.width < LEAST_TIME {
            return;
        }
        let dim = self.theme.ink(Ink::Dim);
        let end = match self.back {
            0 => self.newest.to_owned(),
            back => format!("-{}", units::span(back)),
        };
        let room = area.width.saturating_sub(width(&end));
        let steps = time_steps(self.span, area.width);
        for step in 0..steps {
            let ago = self.back.saturating_add(self.span / steps * (steps - step));
            let text = format!("-{}", units::span(ago));
            let x = (u64::from(area.width) * step / steps) as u16;
            // A label that would touch the one at the end is left out.
            if x + width(&text) < room {
                let label = Rect {
                    x: area.x + x,
                    width: area.width - x,
                    ..area
                };
                Span::styled(text, dim).render(label, buf);
            }
        }
        if width(&end) <= area.width {
            Line::from(Span::styled(end, dim)).right_aligned().render(area, buf);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::model::TimelineUi;
    use crate::view::widgets::tests::{ASCII, COLOUR, Case, MONO, assert_drawn};

    #[test]
    fn memory_axis_has_lines_at_round_figures() {
        let cases: [Case<'_, u64>; 9] = [
            (
                COLOUR,
                8 << 30,
                (42, 4),
                &[
                    "  8.0G ┤┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈",
                    "                                          ",
                    "  4.0G ┤┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈",
                    "     0 ┤                                  ",
                ],
            ),
            (MONO, 8 << 30, (10, 3), &["┈┈┈┈┈┈┈┈┈┈", "          ", "          "]),
            (ASCII, 1, (4, 1), &["┈┈┈┈"]),
            (COLOUR, 0, (4, 2), &["    ", "    "]),
            (COLOUR, u64::MAX, (4, 2), &["┈┈┈┈", "    "]),
            (COLOUR, 8, (0, 0), &[]),
            (COLOUR, 8, (0, 3), &[]),
            (COLOUR, 8, (60, 0), &[]),
            (
                COLOUR,
                3 << 30,
                (1, 13),
                &["┈", " ", " ", " ", "┈", " ", " ", " ", "┈", " ", " ", " ", " "],
            ),
        ];
        for (theme, top, size, lines) in cases {
            let axis = MemoryAxis { theme, top };
            assert_drawn(size, lines, |area, buf| axis.render(area, buf));
        }
    }

    #[test]
    fn time_axis_has_as_many_labels_as_fit() {
        let minute = 60 * SECOND;
        let cases: [Case<'_, (Nanos, Nanos, &str)>; 8] = [
            (
                COLOUR,
                (minute, 0, "now"),
                (60, 1),
                &["-60 s          -45 s          -30 s          -15 s       now"],
            ),
            (
                COLOUR,
                (minute, 0, "now"),
                (20, 2),
                &["-60 s     -30 s  now", "                    "],
            ),
            (COLOUR, (minute, minute, "now"), (24, 1), &["-2 min      -90 s  -60 s"]),
            (COLOUR, (minute, 0, "last known"), (20, 1), &["-60 s     last known"]),
            (
                COLOUR,
                (minute, 0, "longer than the axis"),
                (20, 1),
                &["longer than the axis"],
            ),
            (COLOUR, (minute, 0, "now"), (19, 1), &[]),
            (COLOUR, (minute, 0, "now"), (60, 0), &[]),
            (COLOUR, (minute, 0, "now"), (0, 0), &[]),
        ];
        for (theme, (span, back, newest), size, lines) in cases {
            let axis = TimeAxis {
                theme,
                span,
                back,
                newest,
            };
            assert_drawn(size, lines, |area, buf| axis.render(area, buf));
        }
    }

    #[test]
    fn spans_are_divided_into_round_times() {
        let steps: Vec<u64> = TimelineUi::SPANS
            .iter()
            .map(|&span| span / time_steps(span, 100) / SECOND)
            .collect();
        assert_eq!(steps, [3, 15, 30, 60, 120]);
    }

    #[test]
    fn axis_without_the_memory_of_others_ends_above_what_is_left() {
        assert_eq!(top_above(0, 80 << 30), 80 << 30);
        assert_eq!(top_above(3 << 30, 80 << 30), 4 << 30);
        assert_eq!(top_above(80 << 30, 80 << 30), 80 << 30);
    }

    #[test]
    fn axis_has_its_end_and_round_figures() {
        let labels = |top, height| -> Vec<String> {
            ticks(top, height)
                .into_iter()
                .map(|(bytes, _)| units::bytes_short(bytes))
                .collect()
        };
        const M: u64 = 1 << 20;
        for (top, height, expected) in [
            (81_559 * M, 20, &["79.6G", "64.0G", "48.0G", "32.0G", "16.0G", "0"][..]),
            (81_559 * M, 6, &["79.6G", "32.0G", "0"]),
            // 128 GiB would touch the end.
            (141 << 30, 20, &["141.0G", "96.0G", "64.0G", "32.0G", "0"]),
            (24 << 30, 20, &["24.0G", "16.0G", "8.0G", "0"]),
            (8 << 30, 20, &["8.0G", "6.0G", "4.0G", "2.0G", "0"]),
            (3 << 30, 20, &["3.0G", "2.0G", "1.0G", "0"]),
            (384 * M, 20, &["384M", "256M", "128M", "0"]),
            (1, 20, &["1", "0"]),
            (u64::MAX, 3, &["16.0E", "0"]),
        ] {
            assert_eq!(labels(top, height), expected, "{top} on {height} lines");
        }
        for top in [0, 1, 2, 3, 81_559 * M, u64::MAX] {
            for height in 1..60 {
                let lines: Vec<u16> = ticks(top, height).into_iter().map(|(_, line)| line).collect();
                assert!(
                    lines.is_sorted() && lines.iter().all(|line| *line < height),
                    "{top}: {lines:?}"
                );
            }
        }
    }
}
