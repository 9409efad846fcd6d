//! The phases that a program marked, as bands of time.

use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::Widget;

use crate::model::{Colors, PHASE_LOOKS};
use crate::view::theme::{Ink, Theme};
use crate::wrap::cut;

const LOOKS: usize = PHASE_LOOKS as usize;
/// The colours of bands.
const INKS: [Ink; LOOKS] = [Ink::Allocated, Ink::Pending, Ink::Good, Ink::Accent];
/// The line glyphs of bands in Unicode and in ASCII, where colours do not tell them apart.
const LINES: [(char, char); LOOKS] = [('─', '-'), ('═', '='), ('┄', '.'), ('≈', '~')];

/// Returns the line glyph and the style of the phase with this number.
pub(in crate::view) fn phase_look(theme: &Theme, index: usize) -> (char, Style) {
    let (unicode, ascii) = match theme.depth {
        Colors::Mono => LINES[index % LINES.len()],
        _ => LINES[0],
    };
    let line = if theme.ascii { ascii } else { unicode };
    (line, theme.ink(INKS[index % INKS.len()]))
}

/// A phase from its mark to the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::view) struct PhaseBand {
    /// Its name, shown as far as there is room.
    pub(in crate::view) name: Arc<str>,
    /// Its number, which its look depends on.
    pub(in crate::view) index: usize,
    /// Its columns.
    pub(in crate::view) columns: std::ops::Range<u16>,
}

/// Bands with their names, in the area's first line.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct PhaseStrip<'a> {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The bands from the left. Columns beyond the area are cut.
    pub(in crate::view) bands: &'a [PhaseBand],
}

impl Widget for PhaseStrip<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        if area.is_empty() {
            return;
        }
        for band in self.bands {
            let (line, style) = phase_look(&self.theme, band.index);
            let (from, to) = (band.columns.start, band.columns.end.min(area.width));
            let room = to.saturating_sub(from);
            // A mark at the beginning would fill a band of one column.
            let begins = room > 1 || self.theme.depth != Colors::Mono;
            for x in from..to {
                let glyph = if x == from && begins { '╾' } else { line };
                buf[(area.x + x, area.y)].set_char(glyph).set_style(style);
            }
            if room >= 2 {
                let name = cut(&band.name, room - 1, "");
                buf.set_string(area.x + from + 1, area.y, name, style);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::widgets::tests::{ASCII, COLOUR, MONO, assert_drawn, drawn, letters};

    fn band(name: &str, index: usize, columns: std::ops::Range<u16>) -> PhaseBand {
        PhaseBand {
            name: name.into(),
            index,
            columns,
        }
    }

    #[test]
    fn bands_have_their_names_where_they_fit() {
        let bands = [
            band("forward", 1, 0..12),
            band("backward", 0, 12..16),
            band("step", 3, 17..18),
        ];
        let cases = [
            (COLOUR, (20, 1), "╾forward────╾bac ╾  "),
            (MONO, (20, 1), "╾forward════╾bac ≈  "),
            (ASCII, (20, 1), "╾forward====╾bac ~  "),
            (MONO, (14, 1), "╾forward════╾b"),
            (MONO, (13, 1), "╾forward════─"),
            (MONO, (1, 1), "═"),
            (MONO, (0, 1), ""),
        ];
        for (theme, size, line) in cases {
            let strip = PhaseStrip { theme, bands: &bands };
            assert_drawn(size, &[line], |area, buf| strip.render(area, buf));
        }
    }

    #[test]
    fn wide_letters_and_bands_beyond_the_area_are_cut() {
        let bands = [band("日本語", 0, 0..4), band("", 0, 9..u16::MAX), band("x", 0, 30..31)];
        let strip = PhaseStrip {
            theme: COLOUR,
            bands: &bands,
        };
        let buffer = letters((12, 1), |area, buf| strip.render(area, buf));
        assert_eq!(buffer, Buffer::with_lines(["╾日─     ╾──"]));
    }

    #[test]
    fn phases_differ_without_colours() {
        for ascii in [false, true] {
            let theme = Theme::new(Colors::Mono, ascii);
            let mut lines: Vec<char> = (0..LOOKS).map(|i| phase_look(&theme, i).0).collect();
            assert!(!ascii || lines.iter().all(char::is_ascii), "{lines:?}");
            lines.sort_unstable();
            lines.dedup();
            assert_eq!(lines.len(), LOOKS, "{lines:?}");
        }
        let bands = [band("a", 0, 0..2), band("b", 1, 2..4)];
        let strip = PhaseStrip {
            theme: COLOUR,
            bands: &bands,
        };
        let buffer = drawn((4, 1), |area, buf| strip.render(area, buf));
        assert_ne!(buffer[(0, 0)].fg, buffer[(2, 0)].fg);
    }
}
