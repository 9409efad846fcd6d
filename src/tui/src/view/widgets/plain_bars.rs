//! Bars in the flat colour of their meaning, for what is told apart by its place and name.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use super::graph::{LOWER_EIGHTHS, units};
use crate::view::theme::{Ink, Theme};

const LEFT_EIGHTHS: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// A bar from the left edge, on every line of its area.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct PlainBar {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// Its colour.
    pub(in crate::view) ink: Ink,
    /// Its length as a share of the area's width; one that is more than 0 is seen.
    pub(in crate::view) share: f64,
}

impl Widget for PlainBar {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        let fine = fine(&self.theme);
        let length = units(self.share, area.width, fine);
        for y in area.top()..area.bottom() {
            for (n, x) in (0..).zip(area.left()..area.right()) {
                let part = length.saturating_sub(n * fine).min(fine);
                fill(&self.theme, self.ink, (part, LEFT_EIGHTHS), (x, y), buf);
            }
        }
    }
}

/// Columns from the bottom.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct PlainColumns<'a> {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The columns from the left: colour, and height as a share of the area's height.
    pub(in crate::view) columns: &'a [(Ink, f64)],
}

impl Widget for PlainColumns<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        let fine = fine(&self.theme);
        for (x, &(ink, share)) in (area.left()..area.right()).zip(self.columns) {
            let height = units(share, area.height, fine);
            for (n, y) in (0..).zip((area.top()..area.bottom()).rev()) {
                let part = height.saturating_sub(n * fine).min(fine);
                fill(&self.theme, ink, (part, LOWER_EIGHTHS), (x, y), buf);
            }
        }
    }
}

/// Returns into how many parts a cell is divided.
fn fine(theme: &Theme) -> u32 {
    if theme.has_eighths() { 8 } else { 1 }
}

/// Fills a part of a cell. An empty part leaves it as it is.
fn fill(theme: &Theme, ink: Ink, (part, glyphs): (u32, [char; 9]), at: (u16, u16), buf: &mut Buffer) {
    if part == 0 {
        return;
    }
    let glyph = match theme.has_eighths() {
        true => glyphs[part as usize],
        false if theme.ascii => '#',
        false => '█',
    };
    let cell = &mut buf[at];
    cell.set_char(glyph);
    if let Some(color) = theme.color(ink) {
        cell.set_fg(color);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::buffer::Buffer;

    use super::*;
    use crate::model::Colors;

    fn lines(widget: impl Widget, width: u16, height: u16) -> Vec<String> {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        widget.render(buffer.area, &mut buffer);
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(line).collect()
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        let bar = |depth, ascii, share| PlainBar {
            theme: Theme::new(depth, ascii),
            ink: Ink::Good,
            share,
        };
        assert_eq!(lines(bar(Colors::True, false, 0.375), 4, 2), ["█▌  ", "█▌  "]);
        assert_eq!(lines(bar(Colors::Mono, false, 0.5), 4, 1), ["██  "]);
        assert_eq!(lines(bar(Colors::True, true, 0.01), 4, 1), ["#   "], "it is seen");
        for nothing in [0.0, -1.0, f64::NAN] {
            assert_eq!(lines(bar(Colors::True, false, nothing), 4, 1), ["    "]);
        }
        assert_eq!(lines(bar(Colors::True, false, 9.0), 3, 1), ["███"]);
    }

    #[test]
    fn columns_stand_on_the_bottom() {
        let columns = [(Ink::Good, 0.25), (Ink::Cached, 1.0), (Ink::Good, 0.0)];
        let widget = PlainColumns {
            theme: Theme::new(Colors::True, false),
            columns: &columns,
        };
        assert_eq!(lines(widget, 4, 2), [" █  ", "▄█  "]);
    }
}
