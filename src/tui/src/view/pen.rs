//! Drawing that cannot go wrong: every write is clipped to its area, in every size down to nothing.

#[cfg(test)]
mod tests;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};

use super::theme::{Ink, Theme};
use crate::wrap::cut;
pub(super) use crate::wrap::{width, wrap, wrap_to};

/// Writes into a buffer with a theme. Positions are relative to the area given with each call.
pub(super) struct Pen<'a> {
    /// Some lines of the screen, or all.
    buffer: &'a mut Buffer,
    screen: Rect,
    /// What colours and glyphs look like.
    pub(super) theme: Theme,
    /// Whether it was said somewhere that what is shown is simulated.
    pub(super) labelled: bool,
}

impl<'a> Pen<'a> {
    /// A pen for a buffer that holds the whole screen.
    #[cfg(test)]
    pub(super) fn new(buffer: &'a mut Buffer, theme: Theme) -> Self {
        let screen = buffer.area;
        Pen::on(buffer, screen, theme)
    }

    /// A pen for a buffer that holds some lines of a screen.
    pub(super) fn on(buffer: &'a mut Buffer, screen: Rect, theme: Theme) -> Self {
        Pen {
            buffer,
            screen,
            theme,
            labelled: false,
        }
    }

    /// All of the screen.
    pub(super) fn screen(&self) -> Rect {
        self.screen
    }

    /// One character. Nothing happens outside the area or the buffer.
    pub(super) fn cell(&mut self, area: Rect, x: u16, y: u16, glyph: char, style: Style) {
        if x >= area.width || y >= area.height {
            return;
        }
        let glyph = self.theme.letter(glyph);
        if let Some(cell) = self
            .buffer
            .cell_mut((area.x.saturating_add(x), area.y.saturating_add(y)))
        {
            cell.set_char(glyph).set_style(own(style));
        }
    }

    /// Whether nothing but air or a grid line is in a cell.
    pub(super) fn is_empty(&self, area: Rect, x: u16, y: u16) -> bool {
        let cell = self.buffer.cell((area.x.saturating_add(x), area.y.saturating_add(y)));
        cell.is_some_and(|c| matches!(c.symbol(), " " | "┈"))
    }

    /// Text from column `x` of line `y`, cut at the area's edge. Returns the column after it.
    pub(super) fn text(&mut self, area: Rect, x: u16, y: u16, text: &str, style: Style) -> u16 {
        if x >= area.width || y >= area.height {
            return x;
        }
        let area = area.intersection(self.screen);
        if x >= area.width || y >= area.height {
            return x;
        }
        if self.theme.ascii && !text.is_ascii() {
            let text: String = text.chars().map(|c| self.theme.letter(c)).collect();
            self.write(area, x, y, &text, own(style))
        } else {
            self.write(area, x, y, text, own(style))
        }
    }

    /// Writes text where it begins on the screen; the column after it is the same whether its line is in the buffer or not.
    fn write(&mut self, area: Rect, x: u16, y: u16, text: &str, style: Style) -> u16 {
        let (left, top, room) = (area.x + x, area.y + y, area.width - x);
        let lines = self.buffer.area.top()..self.buffer.area.bottom();
        if lines.contains(&top) {
            let end = self.buffer.set_stringn(left, top, text, usize::from(room), style).0;
            return end - area.x;
        }
        x + columns_of(text, room)
    }

    /// Text whose last column is the one before `end`. Cut at the left when it does not fit. Returns its first column.
    pub(super) fn text_end(&mut self, area: Rect, end: u16, y: u16, text: &str, style: Style) -> u16 {
        let end = end.min(area.width);
        let width = width(text);
        if width <= end {
            self.text(area, end - width, y, text, style);
            return end - width;
        }
        0
    }

    /// Text cut to `room` columns with an ellipsis.
    pub(super) fn clipped(&mut self, area: Rect, x: u16, y: u16, text: &str, room: u16, style: Style) -> u16 {
        let room = room.min(area.width.saturating_sub(x));
        if width(text) <= room {
            return self.text(area, x, y, text, style);
        }
        if room == 0 {
            return x;
        }
        let part = Rect {
            width: (x + room - 1).min(area.width),
            ..area
        };
        let end = self.text(part, x, y, text, style);
        self.cell(area, end, y, '…', style);
        end + 1
    }

    /// The same text in pieces of different styles.
    pub(super) fn spans(&mut self, area: Rect, x: u16, y: u16, spans: &[(&str, Style)]) -> u16 {
        spans
            .iter()
            .fold(x, |x, (text, style)| self.text(area, x, y, text, *style))
    }

    /// Puts a style on an area without changing its text.
    pub(super) fn restyle(&mut self, area: Rect, style: Style) {
        self.buffer.set_style(area.intersection(self.buffer.area), style);
    }

    /// Blanks an area.
    pub(super) fn clear(&mut self, area: Rect) {
        let area = area.intersection(self.buffer.area);
        for position in area.positions() {
            if let Some(cell) = self.buffer.cell_mut(position) {
                cell.reset();
            }
        }
    }

    /// A rounded frame with a title and a note at its right; returns the area inside, one column of air at each side.
    pub(super) fn panel(&mut self, area: Rect, title: &str, note: &str) -> Rect {
        let (w, h) = (area.width, area.height);
        if w < 4 || h < 2 {
            return area;
        }
        let frame = self.theme.ink(Ink::Dim);
        for x in 1..w - 1 {
            self.cell(area, x, 0, '─', frame);
            self.cell(area, x, h - 1, '─', frame);
        }
        for y in 1..h - 1 {
            self.cell(area, 0, y, '│', frame);
            self.cell(area, w - 1, y, '│', frame);
        }
        for (x, y, corner) in [(0, 0, '╭'), (w - 1, 0, '╮'), (0, h - 1, '╰'), (w - 1, h - 1, '╯')] {
            self.cell(area, x, y, corner, frame);
        }
        let inside = Rect { width: w - 2, ..area };
        let mut used = 2;
        if !title.is_empty() {
            let strong = self.theme.ink(Ink::Strong);
            let end = self.clipped(inside, 3, 0, title, w.saturating_sub(6), strong);
            self.cell(inside, 2, 0, ' ', frame);
            self.cell(inside, end, 0, ' ', frame);
            used = end + 1;
        }
        let note_width = width(note);
        if note_width > 0 && used + note_width + 4 < w {
            self.cell(area, w - 4 - note_width, 0, ' ', frame);
            self.text(area, w - 3 - note_width, 0, note, frame);
            self.cell(area, w - 3, 0, ' ', frame);
        }
        Rect {
            x: area.x + 2,
            y: area.y + 1,
            width: w - 4,
            height: h - 2,
        }
    }
}

/// A style that does not inherit the colour of what it is drawn over.
fn own(style: Style) -> Style {
    Style {
        fg: style.fg.or(Some(Color::Reset)),
        ..style
    }
}

/// Columns that the buffer gives to a text that is cut to `room`: what has no width or controls a terminal is left out,
/// and nothing is cut in halves.
fn columns_of(text: &str, room: u16) -> u16 {
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return width(text).min(room);
    }
    let mut columns = 0;
    for grapheme in ratatui::text::Span::raw(text).styled_graphemes(Style::new()) {
        let wide = width(grapheme.symbol);
        if columns + wide > room {
            break;
        }
        columns += wide;
    }
    columns
}

/// `n` lines from the top of an area, and what is left.
pub(super) fn split_top(area: Rect, n: u16) -> (Rect, Rect) {
    let n = n.min(area.height);
    (
        Rect { height: n, ..area },
        Rect {
            y: area.y + n,
            height: area.height - n,
            ..area
        },
    )
}

/// What is left, and `n` lines from the bottom.
pub(super) fn split_bottom(area: Rect, n: u16) -> (Rect, Rect) {
    split_top(area, area.height - n.min(area.height))
}

/// `n` columns from the left, and what is left.
pub(super) fn split_left(area: Rect, n: u16) -> (Rect, Rect) {
    let n = n.min(area.width);
    (
        Rect { width: n, ..area },
        Rect {
            x: area.x + n,
            width: area.width - n,
            ..area
        },
    )
}

/// What is left, and `n` columns from the right.
pub(super) fn split_right(area: Rect, n: u16) -> (Rect, Rect) {
    split_left(area, area.width - n.min(area.width))
}

/// What stands where a text is cut.
pub(super) const CUT: &str = "…";

/// A text cut to so many columns, with an ellipsis when something is missing.
pub(super) fn clip(text: &str, room: u16) -> String {
    cut(text, room, CUT)
}
