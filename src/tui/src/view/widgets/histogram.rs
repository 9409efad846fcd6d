//! A histogram of block sizes.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::bar::SolidBar;
use crate::model::Histogram;
use crate::view::theme::{Ink, Theme};
use crate::wrap::width;
use gpumem_text::units::{bytes_short, count_short, round_size};

/// Columns of a size, of the number of blocks, and of both with the gap behind them.
const SIZE: usize = 8;
const COUNT: usize = 5;
const FIGURES: u16 = (SIZE + COUNT + 1) as u16;

/// Free blocks per power of two, the largest first: their size, their number, and a bar of their bytes. If lines are few, the
/// smallest sizes share the last one.
///
/// The part of a line beyond its bar is left as it is. ratatui's `BarChart` scales to whole cells and has no place for two
/// figures beside a bar.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct SizeHistogram<'a> {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The counted sizes.
    pub(in crate::view) sizes: &'a Histogram,
}

impl Widget for SizeHistogram<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        let dim = self.theme.ink(Ink::Dim);
        let Some((first, last)) = self.sizes.range() else {
            Span::styled("nothing is free", dim).render(area, buf);
            return;
        };
        let sizes = self.sizes;
        let lines = usize::from(area.height).min(last - first + 1);
        let fold = last + 1 - lines;
        let most = sizes.bytes[first..=last].iter().copied().max().unwrap_or(1).max(1);
        for (line, bucket) in area.rows().zip((fold..=last).rev()) {
            let folded = bucket == fold && fold > first;
            let range = if folded { first..=bucket } else { bucket..=bucket };
            let blocks: u64 = sizes.count[range.clone()].iter().map(|&n| u64::from(n)).sum();
            let bytes: u64 = sizes.bytes[range].iter().fold(0, |sum, &n| sum.saturating_add(n));
            let total = bytes_short(bytes);
            let Some(room) = area.width.checked_sub(FIGURES + width(&total)) else {
                // Cut figures would be wrong.
                continue;
            };
            let size = if folded {
                format!("<{}", round_size(1 << (bucket + 1).min(63)))
            } else {
                round_size(1 << bucket)
            };
            // No size in a real address space is wider than its column.
            let size = if width(&size) > SIZE as u16 {
                String::new()
            } else {
                size
            };
            let pad = Span::raw(" ".repeat(SIZE - usize::from(width(&size))));
            let count = Span::raw(format!("{:>COUNT$}", count_short(blocks)));
            Line::from_iter([pad, Span::styled(size, dim), count]).render(line, buf);
            let style = if bytes == 0 { dim } else { Style::new() };
            Line::from(Span::styled(total, style)).right_aligned().render(line, buf);
            let bar = Rect {
                x: line.x + FIGURES,
                width: room.saturating_sub(1),
                ..line
            };
            let full = bytes.min(most);
            if full > 0 {
                let long = u128::from(bar.width) * 8;
                // At most `long`, which came from a u16.
                let eighths = (long * u128::from(full) / u128::from(most)) as u64;
                SolidBar {
                    theme: self.theme,
                    ink: Ink::Cached,
                    eighths: eighths.max(1),
                }
                .render(bar, buf);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::widgets::tests::{ASCII, COLOUR, Case, assert_drawn, drawn};

    fn sizes(blocks: &[(usize, u32, u64)]) -> Histogram {
        let mut sizes = Histogram::default();
        for &(bucket, count, bytes) in blocks {
            sizes.count[bucket] = count;
            sizes.bytes[bucket] = bytes;
        }
        sizes
    }

    #[test]
    fn sizes_and_counts_stand_beside_a_bar_of_bytes() {
        let some = sizes(&[(9, 123_456, 123_456 << 9), (10, 1_234, 1_234 << 10), (12, 3, 3 << 12)]);
        let most = sizes(&[(0, u32::MAX, u64::MAX), (63, u32::MAX, u64::MAX)]);
        let cases: [Case<'_, &Histogram>; 10] = [
            (
                COLOUR,
                &some,
                (26, 5),
                &[
                    "   4 KiB    3 ▏      12.0K",
                    "   2 KiB    0            0",
                    "   1 KiB 1234 ▏       1.2M",
                    "   512 B 123k ▓▓▓▓▓▓ 60.3M",
                    "                          ",
                ],
            ),
            // The smallest sizes share the last line.
            (
                ASCII,
                &some,
                (26, 2),
                &["   4 KiB    3 =      12.0K", "  <4 KiB 124k ====== 61.5M"],
            ),
            (COLOUR, &some, (19, 1), &["  <8 KiB 124k 61.5M"]),
            (COLOUR, &some, (18, 1), &["                  "]),
            (COLOUR, &some, (26, 0), &[]),
            (COLOUR, &some, (0, 2), &["", ""]),
            (
                COLOUR,
                &Histogram::default(),
                (16, 2),
                &["nothing is free ", "                "],
            ),
            (COLOUR, &Histogram::default(), (3, 1), &["not"]),
            (COLOUR, &Histogram::default(), (0, 0), &[]),
            (ASCII, &most, (34, 1), &["          >1G ============== 16.0E"]),
        ];
        for (theme, sizes, size, lines) in cases {
            let histogram = SizeHistogram { theme, sizes };
            assert_drawn(size, lines, |area, buf| histogram.render(area, buf));
        }
    }

    #[test]
    fn bar_has_the_colour_of_cached_memory() {
        let histogram = SizeHistogram {
            theme: COLOUR,
            sizes: &sizes(&[(10, 1, 1024)]),
        };
        let buffer = drawn((26, 1), |area, buf| histogram.render(area, buf));
        let tile = COLOUR.tile(Ink::Cached);
        assert_eq!(
            (Some(buffer[(14, 0)].fg), Some(buffer[(14, 0)].bg)),
            (tile.style.fg, tile.style.bg)
        );
    }
}
