//! Drawing that cannot go wrong: every write is clipped to its area, in every size down to nothing.

#[cfg(test)]
mod tests;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::Span;
use ratatui::widgets::Widget;

use super::panel::Panel;
use super::theme::{Ink, Theme};
use crate::wrap::cut;
pub(super) use crate::wrap::{width, wrap};

/// Writes into a buffer with a theme. Positions are relative to the area given with each call.
pub(super) struct Pen<'a> {
    buffer: &'a mut Buffer,
    /// What colours and glyphs look like.
    pub(super) theme: Theme,
    /// Whether it was said somewhere that what is shown is simulated.
    pub(super) labelled: bool,
}

impl<'a> Pen<'a> {
    pub(super) fn new(buffer: &'a mut Buffer, theme: Theme) -> Self {
        Pen {
            buffer,
            theme,
            labelled: false,
        }
    }

    /// All of the screen.
    pub(super) fn screen(&self) -> Rect {
        self.buffer.area
    }

    /// Where widgets are rendered.
    pub(super) fn buffer(&mut self) -> &mut Buffer {
        self.buffer
    }

    /// One character. Nothing happens outside the area or the buffer.
    pub(super) fn cell(&mut self, area: Rect, x: u16, y: u16, glyph: char, style: Style) {
        if x >= area.width || y >= area.height {
            return;
        }
        if let Some(cell) = self
            .buffer
            .cell_mut((area.x.saturating_add(x), area.y.saturating_add(y)))
        {
            cell.set_char(glyph).set_style(own(style));
        }
    }

    /// Text from column `x` of line `y`, cut at the area's edge. Returns the column after it.
    pub(super) fn text(&mut self, area: Rect, x: u16, y: u16, text: &str, style: Style) -> u16 {
        let area = area.intersection(self.buffer.area);
        if x >= area.width || y >= area.height {
            return x;
        }
        let (left, top, room) = (area.x + x, area.y + y, area.width - x);
        let (end, _) = self.buffer.set_stringn(left, top, text, usize::from(room), own(style));
        end - area.x
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

    /// Puts a style on an area without changing its text.
    pub(super) fn restyle(&mut self, area: Rect, style: Style) {
        self.buffer.set_style(area.intersection(self.buffer.area), style);
    }

    /// A rounded frame with a title and a note at its right; returns the area inside, one column of air at each side. An area that is too
    /// small has no frame.
    pub(super) fn panel(&mut self, area: Rect, title: &str, note: &str) -> Rect {
        let note = Span::styled(note.to_owned(), self.theme.ink(Ink::Dim));
        let panel = Panel::new(self.theme)
            .title(clip(title, area.width.saturating_sub(6)))
            .note((!note.content.is_empty()).then_some(note));
        let inside = panel.inner(area);
        panel.render(area.intersection(self.buffer.area), self.buffer);
        inside
    }
}

/// A style that does not inherit the colour of what it is drawn over.
fn own(style: Style) -> Style {
    Style {
        fg: style.fg.or(Some(Color::Reset)),
        ..style
    }
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
