//! All findings in full. The lines below a view hold only some of them, and cut long ones.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::view::Screen;
use crate::view::chrome::severity;
use crate::wrap::wrap;

/// The widest popup whose lines are still easy to read, with the frame.
const WIDE: u16 = 100;
/// Columns of the mark before a sentence.
const MARK: u16 = 2;

/// Draws the findings, scrolled by `scroll` lines if they do not fit.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, scroll: u16) {
    let wide = area.width.min(WIDE);
    let lines = lines(screen, wide.saturating_sub(4 + MARK));
    let (inside, scroll) = super::page(screen, area, wide, lines.len() as u16, "Findings", scroll);
    screen.render(Paragraph::new(lines).scroll((scroll, 0)), inside);
}

/// Returns the wrapped sentences with blank lines between them.
fn lines(screen: &Screen<'_>, room: u16) -> Vec<Line<'static>> {
    let mut lines = vec![];
    for finding in screen.model.findings() {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        let (mark, style) = severity(screen, finding.severity);
        for (i, part) in wrap(&finding.text, room).into_iter().enumerate() {
            let mark = if i == 0 { mark } else { "" };
            lines.push(Line::from_iter([
                Span::styled(format!("{mark:<0$}", usize::from(MARK)), style),
                Span::raw(part),
            ]));
        }
    }
    if lines.is_empty() {
        lines.push(Line::raw("  Nothing stands out now."));
    }
    lines
}
