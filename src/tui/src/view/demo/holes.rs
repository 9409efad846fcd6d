//! Why a request fails: the holes side by side, each with its size, and a bar of the request below them, at one scale.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::Widget;

use super::map_strip::mib;
use crate::view::theme::{Ink, Theme};
use crate::wrap::width;

/// Lines that it takes.
pub(super) const LINES: u16 = 3;

/// The holes and the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holes<'a> {
    /// Colours and glyphs.
    pub(super) theme: Theme,
    /// Sizes of the holes in bytes.
    pub(super) holes: &'a [u64],
    /// Bytes of the request.
    pub(super) request: u64,
}

impl Holes<'_> {
    /// Returns the columns of a bar at the scale at which all holes with their gaps fit into `columns`, and the request, too.
    fn bar(&self, bytes: u64, columns: u16) -> u16 {
        let gaps = u16::try_from(self.holes.len()).unwrap_or(u16::MAX).saturating_sub(1);
        let room = u64::from(columns.saturating_sub(gaps).max(1));
        let all = self.holes.iter().fold(0, |sum: u64, hole| sum.saturating_add(*hole));
        let most = u128::from(all.max(self.request).max(1));
        // At most `room`, a u16.
        ((u128::from(bytes) * u128::from(room) / most) as u16).max(1)
    }
}

impl Widget for Holes<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        if area.height < LINES {
            return;
        }
        let free = self.theme.tile(Ink::Cached);
        let mut x = area.x;
        for &hole in self.holes {
            let label = mib(hole);
            let bar = self.bar(hole, area.width);
            let slot = bar.max(width(&label));
            if x + slot > area.right() {
                break;
            }
            buf.set_string(x + (slot - width(&label)) / 2, area.y, label, Style::new());
            for x in x..x + bar {
                buf[(x, area.y + 1)].set_char(free.glyph).set_style(free.style);
            }
            x += slot + 1;
        }
        let color = self.theme.color(Ink::Warning);
        let bar = self.bar(self.request, area.width).min(area.width);
        let glyph = if self.theme.ascii { '#' } else { '█' };
        let y = area.y + 2;
        for x in area.x..area.x + bar {
            buf[(x, y)].set_char(glyph).set_style(self.theme.ink(Ink::Warning));
        }
        let fits = self.holes.iter().any(|hole| *hole >= self.request);
        let texts = match fits {
            true => [
                format!(" {} needed ", mib(self.request)),
                format!(" {} ", mib(self.request)),
            ],
            false => [
                format!(" {} needed: it fits into none of them ", mib(self.request)),
                format!(" {} fits none ", mib(self.request)),
            ],
        };
        let inside = texts.iter().find(|text| width(text) <= bar);
        let behind = texts.iter().find(|text| bar + width(text) <= area.width);
        if let Some(text) = inside {
            buf.set_string(area.x + (bar - width(text)) / 2, y, text, self.theme.on(color));
        } else if let Some(text) = behind {
            buf.set_string(area.x + bar, y, text, self.theme.ink(Ink::Warning));
        }
    }
}

#[cfg(test)]
mod tests {
    use gpumem_text::units::MIB;

    use super::*;
    use crate::view::widgets::tests::{ASCII, COLOUR, Case, assert_drawn};

    #[test]
    fn request_is_longer_than_each_hole() {
        let four = [200, 300, 150, 26].map(|mib| mib * MIB);
        let cases: [Case<'_, (&[u64], u64)>; 6] = [
            (
                COLOUR,
                (&four, 500),
                (50, 3),
                &[
                    "     200              300             150     26  ",
                    "▓▓▓▓▓▓▓▓▓▓▓▓▓ ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓ ▓▓▓▓▓▓▓▓▓▓ ▓   ",
                    "█████████ 500 fits none ██████████                ",
                ],
            ),
            (
                ASCII,
                (&four, 500),
                (20, 3),
                &[" 200    300   150 26", "===== ======= === = ", "############        "],
            ),
            (
                ASCII,
                (&four, 100),
                (30, 3),
                &[
                    "  200       300      150  26  ",
                    "======= =========== ===== =   ",
                    "### 100 needed                ",
                ],
            ),
            (
                ASCII,
                (&[], 100),
                (12, 3),
                &["            ", "            ", "############"],
            ),
            (ASCII, (&four, 500), (9, 2), &["         ", "         "]),
            (ASCII, (&four, 500), (0, 3), &["", "", ""]),
        ];
        for (theme, (holes, request), size, lines) in cases {
            let request = request * MIB;
            assert_drawn(size, lines, |area, buf| {
                Holes { theme, holes, request }.render(area, buf)
            });
        }
    }
}
