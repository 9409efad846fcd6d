//! The frame around a part of a view.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Padding, Widget};

use crate::view::theme::{Ink, Theme};
use crate::wrap::width;

/// A rounded frame with a title at the left and a note at the right of its top line, and a blank column at each side inside.
/// An area that is too small gets no frame.
#[derive(Clone, Debug, Default)]
pub(super) struct Panel<'a> {
    theme: Theme,
    title: Option<Span<'a>>,
    label: Option<Span<'a>>,
    note: Option<Span<'a>>,
}

impl<'a> Panel<'a> {
    /// Creates a frame without texts.
    pub(super) fn new(theme: Theme) -> Self {
        Panel {
            theme,
            ..Panel::default()
        }
    }

    /// Sets the title at the left. It has to fit.
    pub(super) fn title(mut self, title: impl Into<String>) -> Self {
        let title = title.into();
        self.title = (!title.is_empty()).then(|| Span::styled(title, self.theme.ink(Ink::Strong)));
        self
    }

    /// Sets the label behind the title.
    pub(super) fn label(mut self, label: Option<Span<'a>>) -> Self {
        self.label = label;
        self
    }

    /// Sets the note at the right. It is left out if it does not fit beside the title.
    pub(super) fn note(mut self, note: Option<Span<'a>>) -> Self {
        self.note = note;
        self
    }

    /// Checks whether an area has room for a frame.
    pub(super) fn fits(area: Rect) -> bool {
        area.width >= 4 && area.height >= 2
    }

    /// Returns the area inside the frame, or all of `area` if it is too small for one.
    pub(super) fn inner(&self, area: Rect) -> Rect {
        match Panel::fits(area) {
            true => self.block().inner(area),
            false => area,
        }
    }

    /// Returns the column behind the title, where a label begins.
    pub(super) fn behind(title: &str) -> u16 {
        width(title) + 4
    }

    fn block(&self) -> Block<'a> {
        Block::bordered()
            .border_type(BorderType::Rounded)
            .border_style(self.theme.ink(Ink::Dim))
            .padding(Padding::horizontal(1))
    }
}

/// Resets the colour of a span that has none, so that it does not take on the frame's.
fn own(span: Span<'_>) -> Span<'_> {
    let style = Style::new().fg(Color::Reset).patch(span.style);
    span.style(style)
}

impl Widget for Panel<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        if !Panel::fits(area) {
            return;
        }
        let frame = self.theme.ink(Ink::Dim);
        let blank = || Span::styled(" ", frame);
        let words = [self.title.clone(), self.label.clone()].into_iter().flatten();
        let title: Vec<Span<'_>> = words.flat_map(|span| [own(span), blank()]).collect();
        let mut block = self.block();
        // A piece of the frame separates the title from the note. A label needs none.
        let apart = usize::from(self.label.is_none());
        let mut used = 2;
        if !title.is_empty() {
            let title = Line::from_iter([Span::styled("─ ", frame)].into_iter().chain(title));
            used = title.width() + 1;
            block = block.title(title);
        }
        if let Some(note) = self
            .note
            .filter(|note| used + note.width() + 4 + apart <= area.width.into())
        {
            let note = [blank(), own(note), Span::styled(" ─", frame)];
            block = block.title(Line::from_iter(note).right_aligned());
        }
        block.render(area, buf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_dropped_as_the_frame_shrinks() {
        let cases: &[(u16, &str, &[&str])] = &[
            (16, "note", &["╭─ ab ── note ─╮", "╰──────────────╯"]),
            (15, "note", &["╭─ ab ─ note ─╮", "╰─────────────╯"]),
            (14, "note", &["╭─ ab ───────╮", "╰────────────╯"]),
            (4, "", &["╭─ ╮", "╰──╯"]),
            (3, "", &["   ", "   "]),
        ];
        for (width, note, expected) in cases {
            let area = Rect::new(0, 0, *width, 2);
            let mut buffer = Buffer::empty(area);
            let note = (!note.is_empty()).then(|| Span::raw(*note));
            let panel = Panel::new(Theme::default()).title("ab").note(note);
            let inside = panel.inner(area);
            panel.render(area, &mut buffer);
            let lines: Vec<String> = area
                .rows()
                .map(|row| row.columns().map(|at| buffer[at.as_position()].symbol()).collect())
                .collect();
            assert_eq!(lines, *expected, "{width}");
            assert_eq!(inside == area, *width < 4);
        }
    }

    #[test]
    fn label_stands_behind_the_title() {
        let area = Rect::new(0, 0, 16, 2);
        let mut buffer = Buffer::empty(area);
        let panel = Panel::new(Theme::default()).title("ab");
        panel.label(Some(Span::raw("SIM"))).render(area, &mut buffer);
        let first: String = (0..16).map(|x| buffer[(x, 0)].symbol()).collect();
        assert_eq!(first, "╭─ ab SIM ─────╮");
        assert_eq!(buffer[(Panel::behind("ab"), 0)].symbol(), "S");
    }
}
