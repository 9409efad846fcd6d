//! Events under a graph with the same columns, and the lines up through the graph at failed requests.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;
use ratatui::widgets::Widget;

use crate::model::MarkKind;
use crate::view::theme::{Ink, Theme};

/// The look of a kind of event.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct MarkLook {
    /// Of several events in a column, the most severe (highest) is shown.
    pub(in crate::view) severity: u8,
    glyph: char,
    ascii: char,
    ink: Ink,
    /// Its name in full, and a short one.
    pub(in crate::view) names: [&'static str; 2],
}

impl MarkLook {
    /// Returns its glyph in a legend.
    pub(in crate::view) fn sign(&self, theme: &Theme) -> Span<'static> {
        let (glyph, style) = self.cell(theme);
        Span::styled(glyph.to_string(), style)
    }

    fn cell(&self, theme: &Theme) -> (char, Style) {
        (if theme.ascii { self.ascii } else { self.glyph }, theme.ink(self.ink))
    }
}

/// Returns the look of a kind of event.
pub(in crate::view) fn mark_look(kind: MarkKind) -> MarkLook {
    let (severity, glyph, ascii, ink, names) = match kind {
        MarkKind::Died => (9, '†', '+', Ink::Warning, ["died", "died"]),
        MarkKind::OutOfMemory => (8, '✗', 'X', Ink::Warning, ["out of memory", "OOM"]),
        MarkKind::Retry => (7, '↻', '@', Ink::Warning, ["retried", "retry"]),
        MarkKind::Monitor => (6, '◈', '*', Ink::Warning, ["monitor", "monitor"]),
        MarkKind::CacheReleased => (5, '◇', 'c', Ink::Accent, ["cache released", "released"]),
        MarkKind::Migration => (4, '⇅', 'u', Ink::Accent, ["migrations", "migrated"]),
        MarkKind::Remapped => (3, '⇄', 'm', Ink::Good, ["holes joined", "joined"]),
        MarkKind::SegmentFreed => (2, '▾', 'v', Ink::Cached, ["memory returned", "returned"]),
        MarkKind::SegmentTaken => (1, '▴', '^', Ink::Allocated, ["memory taken", "taken"]),
        MarkKind::Exited => (1, '∎', '.', Ink::Dim, ["exited", "exited"]),
        MarkKind::Phase => (0, '│', '|', Ink::Dim, ["phase", "phase"]),
    };
    MarkLook {
        severity,
        glyph,
        ascii,
        ink,
        names,
    }
}

/// One glyph per column with an event, on the area's first line.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct EventStrip<'a> {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The event of each column, from the left.
    pub(in crate::view) columns: &'a [Option<MarkKind>],
}

impl Widget for EventStrip<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        if area.is_empty() {
            return;
        }
        for (x, kind) in (area.left()..area.right()).zip(self.columns) {
            if let Some(kind) = *kind {
                let (glyph, style) = mark_look(kind).cell(&self.theme);
                buf[(x, area.y)].set_char(glyph).set_style(style);
            }
        }
    }
}

/// A line through the blank part of a graph at every column in which a request failed or a program died. It is drawn after the graph and leaves its
/// layers and labels.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct FailureLines<'a> {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The event of each column, from the left.
    pub(in crate::view) columns: &'a [Option<MarkKind>],
}

impl Widget for FailureLines<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        let (_, style) = mark_look(MarkKind::OutOfMemory).cell(&self.theme);
        for (x, kind) in (area.left()..area.right()).zip(self.columns) {
            if !matches!(kind, Some(MarkKind::OutOfMemory | MarkKind::Died)) {
                continue;
            }
            for y in area.top()..area.bottom() {
                let cell = &mut buf[(x, y)];
                // The graph's grid lines count as blank.
                if matches!(cell.symbol(), " " | "┈") {
                    cell.set_char('┊').set_style(style);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::widgets::tests::{ASCII, COLOUR, Case, MONO, assert_drawn, drawn, letters};

    const KINDS: [MarkKind; 11] = [
        MarkKind::OutOfMemory,
        MarkKind::Retry,
        MarkKind::Monitor,
        MarkKind::CacheReleased,
        MarkKind::Migration,
        MarkKind::Remapped,
        MarkKind::SegmentFreed,
        MarkKind::SegmentTaken,
        MarkKind::Phase,
        MarkKind::Died,
        MarkKind::Exited,
    ];

    #[test]
    fn every_kind_of_event_has_its_own_glyph() {
        let mut columns = KINDS.map(Some).to_vec();
        columns.insert(1, None);
        let cases: [Case<'_, &[Option<MarkKind>]>; 7] = [
            (COLOUR, &columns, (13, 1), &["✗ ↻◈◇⇅⇄▾▴│†∎ "]),
            (MONO, &columns, (12, 2), &["✗ ↻◈◇⇅⇄▾▴│†∎", "            "]),
            (ASCII, &columns, (12, 1), &["X @*cumv^|+."]),
            (COLOUR, &columns, (3, 1), &["✗ ↻"]),
            (COLOUR, &columns, (0, 1), &[""]),
            (COLOUR, &columns, (3, 0), &[]),
            (COLOUR, &[], (3, 1), &["   "]),
        ];
        for (theme, columns, size, lines) in cases {
            let strip = EventStrip { theme, columns };
            assert_drawn(size, lines, |area, buf| strip.render(area, buf));
        }
    }

    #[test]
    fn failed_request_draws_a_line_through_blank_cells() {
        let lines = FailureLines {
            theme: COLOUR,
            columns: &[Some(MarkKind::OutOfMemory), None, Some(MarkKind::Retry)],
        };
        let graph = ["┈┈┈", "   ", "█ █"];
        let draw = |area: Rect, buf: &mut Buffer| {
            for (y, line) in (area.y..).zip(graph) {
                buf.set_string(area.x, y, line, Style::new());
            }
            lines.render(area, buf);
        };
        assert_eq!(letters((3, 3), draw), Buffer::with_lines(["┊┈┈", "┊  ", "█ █"]));
        let buffer = drawn((3, 3), draw);
        assert_eq!(Some(buffer[(0, 1)].fg), COLOUR.color(Ink::Warning));
        for size in [(0, 0), (0, 2), (2, 0)] {
            letters(size, |area, buf| lines.render(area, buf));
        }
    }
}
