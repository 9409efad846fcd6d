//! A sparkline: a graph over time in one line.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use super::graph::{LOWER_EIGHTHS, units};
use crate::view::theme::{Ink, Theme};

const ASCII_RAMP: [char; 9] = [' ', '.', '.', ':', '-', '=', '+', '*', '#'];

/// A sparkline with one sample per column, the newest at the right edge of the area's first line.
///
/// Unlike ratatui's `Sparkline` it distinguishes a sample of zero from a missing one, is aligned at the right, and has a
/// gradient.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct Spark<'a> {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// Its colour.
    pub(in crate::view) ink: Ink,
    /// Heights from 0 to 1, the newest last. `None`: no sample.
    pub(in crate::view) samples: &'a [Option<f64>],
}

impl Widget for Spark<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        if area.is_empty() {
            return;
        }
        // A sample of zero is drawn as a low line, so that it differs from a missing one.
        let (ramp, foot) = match self.theme.ascii {
            true => (ASCII_RAMP, '_'),
            false => (LOWER_EIGHTHS, '▁'),
        };
        for (x, sample) in (area.left()..area.right()).rev().zip(self.samples.iter().rev()) {
            let Some(sample) = *sample else { continue };
            let glyph = match units(sample, 1, 8) {
                0 => foot,
                filled => ramp[filled as usize],
            };
            buf[(x, area.y)]
                .set_char(glyph)
                .set_style(self.theme.gradient(self.ink, sample));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::widgets::tests::{ASCII, COLOUR, Case, TRUE, assert_drawn, drawn};

    #[test]
    fn zero_sample_differs_from_a_missing_one() {
        let samples = [None, Some(0.0), Some(0.5), Some(1.0)];
        let odd = [f64::NAN, f64::INFINITY, -1.0, 7.0].map(Some);
        let cases: [Case<'_, &[Option<f64>]>; 9] = [
            (COLOUR, &samples, (4, 1), &[" ▁▄█"]),
            (ASCII, &samples, (4, 1), &[" _-#"]),
            (COLOUR, &samples, (6, 2), &["   ▁▄█", "      "]),
            (COLOUR, &samples, (1, 1), &["█"]),
            (COLOUR, &samples, (0, 1), &[""]),
            (COLOUR, &samples, (0, 0), &[]),
            (COLOUR, &[], (2, 1), &["  "]),
            (COLOUR, &odd, (4, 1), &["▁▁▁█"]),
            (ASCII, &odd, (4, 1), &["___#"]),
        ];
        for (theme, samples, size, lines) in cases {
            let spark = Spark {
                theme,
                ink: Ink::Accent,
                samples,
            };
            assert_drawn(size, lines, |area, buf| spark.render(area, buf));
        }
    }

    #[test]
    fn high_sample_is_brighter() {
        let spark = Spark {
            theme: TRUE,
            ink: Ink::Allocated,
            samples: &[Some(0.0), Some(1.0)],
        };
        let buffer = drawn((2, 1), |area, buf| spark.render(area, buf));
        let shade = |height| TRUE.gradient(Ink::Allocated, height).fg;
        assert_eq!(
            [Some(buffer[(0, 0)].fg), Some(buffer[(1, 0)].fg)],
            [shade(0.0), shade(1.0)]
        );
    }
}
