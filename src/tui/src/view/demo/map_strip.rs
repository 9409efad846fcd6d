//! The map of a step: one strip of boxes, each with its size in MiB. What the program holds is filled; a hole is an outline.

use gpumem_text::units::MIB;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;
use ratatui::widgets::Widget;

use super::places::{Cells, Content};
use crate::view::theme::{Ink, Theme};
use crate::wrap::width;

/// Returns a size in MiB, rounded up, without its unit.
pub(super) fn mib(bytes: u64) -> String {
    bytes.div_ceil(MIB).to_string()
}

/// The boxes of a map. They fill the height of the area.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapStrip<'a> {
    /// Colours and glyphs.
    pub(super) theme: Theme,
    /// The boxes from the left. Columns beyond the area are cut.
    pub(super) cells: &'a [Cells],
}

/// Returns the colour of a content.
pub(super) fn ink(content: Content) -> Ink {
    match content {
        Content::Held => Ink::Allocated,
        Content::Free => Ink::Cached,
        Content::Gone => Ink::Unmapped,
    }
}

/// Returns the sample of a content in a legend.
pub(super) fn sign(theme: &Theme, content: Content) -> Span<'static> {
    let glyph = match content {
        Content::Held => theme.glyph(Ink::Allocated),
        Content::Free => outline(theme, content)[1],
        Content::Gone => outline(theme, content)[1],
    };
    Span::styled(glyph.to_string(), theme.ink(ink(content)))
}

/// Returns the glyphs of an outline: its sides, its top and bottom, and its corners from the top left clockwise.
fn outline(theme: &Theme, content: Content) -> [char; 6] {
    match content {
        Content::Gone => [theme.glyph(Ink::Free); 6],
        _ if theme.ascii => ['|', '-', '+', '+', '+', '+'],
        _ => ['┊', '╌', '╭', '╮', '╯', '╰'],
    }
}

impl Widget for MapStrip<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        for cells in self.cells {
            let (from, to) = (cells.columns.start.min(area.width), cells.columns.end.min(area.width));
            let place = Rect {
                x: area.x + from,
                width: to - from,
                ..area
            };
            match cells.content {
                Content::Held => self.fill(place, buf),
                Content::Free | Content::Gone => self.outline(cells.content, place, buf),
            }
            self.label(cells, place, buf);
        }
    }
}

impl MapStrip<'_> {
    /// Fills a box. Its first column shows where it begins, since it may have a neighbour.
    fn fill(&self, place: Rect, buf: &mut Buffer) {
        let tile = self.theme.tile(Ink::Allocated);
        let begin = match (self.theme.seam(Ink::Allocated), self.theme.ground(Ink::Allocated)) {
            _ if self.theme.ascii => ('[', tile.style),
            (Some(seam), Some(ground)) => ('▏', Style::new().fg(seam).bg(ground)),
            _ => ('▐', tile.style),
        };
        for at in place.positions() {
            let (glyph, style) = if at.x == place.x {
                begin
            } else {
                (tile.glyph, tile.style)
            };
            buf[at].set_char(glyph).set_style(style);
        }
    }

    fn outline(&self, content: Content, place: Rect, buf: &mut Buffer) {
        let [side, across, top_left, top_right, bottom_right, bottom_left] = outline(&self.theme, content);
        let style = self.theme.ink(ink(content));
        for at in place.positions() {
            let [left, right] = [at.x == place.x, at.x + 1 == place.right()];
            let [top, bottom] = [at.y == place.y, at.y + 1 == place.bottom()];
            let glyph = match () {
                () if place.height == 1 => across,
                () if place.width == 1 => side,
                () if top && left => top_left,
                () if top && right => top_right,
                () if bottom && right => bottom_right,
                () if bottom && left => bottom_left,
                () if top || bottom => across,
                () if left || right => side,
                () => continue,
            };
            buf[at].set_char(glyph).set_style(style);
        }
    }

    /// Writes the size of a box in its middle, if it fits.
    fn label(&self, cells: &Cells, place: Rect, buf: &mut Buffer) {
        let text = mib(cells.bytes);
        let wide = width(&text);
        let (x, style) = match cells.content {
            // The other lines still show where it begins.
            Content::Held if place.height > 1 && wide == place.width => {
                (place.x, self.theme.on(self.theme.ground(Ink::Allocated)))
            }
            Content::Held => (place.x + 1, self.theme.on(self.theme.ground(Ink::Allocated))),
            content => (place.x, self.theme.ink(ink(content))),
        };
        let room = place.right().saturating_sub(x);
        if wide <= room && place.height > 0 {
            buf.set_string(x + (room - wide) / 2, place.y + (place.height - 1) / 2, text, style);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::widgets::tests::{ASCII, COLOUR, Case, MONO, assert_drawn};

    #[test]
    fn boxes_have_their_sizes_where_they_fit() {
        let cells = |content, mib, columns| Cells {
            content,
            bytes: mib * MIB,
            columns,
        };
        let all = [
            cells(Content::Held, 100, 0..5),
            cells(Content::Free, 200, 5..12),
            cells(Content::Held, 26, 12..13),
            cells(Content::Gone, 300, 13..19),
            cells(Content::Free, 26, 19..20),
        ];
        let cases: [Case<'_, ()>; 6] = [
            (
                COLOUR,
                (),
                (20, 3),
                &["▏████╭╌╌╌╌╌╮▏······┊", "▏100█┊ 200 ┊▏·300 ·┊", "▏████╰╌╌╌╌╌╯▏······┊"],
            ),
            (
                ASCII,
                (),
                (20, 3),
                &["[####+-----+[......|", "[100#| 200 |[.300 .|", "[####+-----+[......|"],
            ),
            (MONO, (), (14, 1), &["▐100█╌╌200╌╌▐·"]),
            (MONO, (), (8, 2), &["▐100█200", "▐████╰╌╯"]),
            (MONO, (), (1, 1), &["▐"]),
            (MONO, (), (0, 3), &["", "", ""]),
        ];
        for (theme, (), size, lines) in cases {
            let cells = &all[..];
            assert_drawn(size, lines, |area, buf| MapStrip { theme, cells }.render(area, buf));
        }
    }
}
