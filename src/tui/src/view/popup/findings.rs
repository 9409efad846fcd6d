//! The findings: all of them, in full. Below a view there is room for some, and for a part of a long one.

use ratatui::layout::Rect;
use ratatui::style::Style;

use super::super::Screen;
use super::super::chrome::severity;
use super::super::pen::wrap;

/// Columns of the widest sentence that is read with ease, with the frame.
const WIDE: u16 = 100;
/// Columns of the mark before a sentence.
const MARK: u16 = 2;

/// Draws the findings, scrolled by some lines when they do not fit.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, scroll: u16) {
    let wide = area.width.min(WIDE);
    let lines = lines(screen, wide.saturating_sub(4 + MARK));
    let (inside, scroll) = super::page(screen, area, wide, lines.len() as u16, "Findings", scroll);
    let shown = lines.iter().skip(usize::from(scroll)).take(usize::from(inside.height));
    for (y, ((mark, style), text)) in (0..).zip(shown) {
        screen.pen.text(inside, 0, y, mark, *style);
        screen.pen.text(inside, MARK, y, text, Style::new());
    }
}

/// A mark and its look, and the text beside it.
type Line = ((&'static str, Style), String);

/// Sentences in so many columns, with air between them.
fn lines(screen: &Screen<'_>, room: u16) -> Vec<Line> {
    let unmarked = ("", Style::new());
    let mut lines: Vec<Line> = vec![];
    for finding in screen.model.findings() {
        if !lines.is_empty() {
            lines.push((unmarked, String::new()));
        }
        let marks = std::iter::once(severity(screen, finding.severity)).chain(std::iter::repeat(unmarked));
        lines.extend(marks.zip(wrap(&finding.text, room)));
    }
    if lines.is_empty() {
        lines.push((unmarked, "Nothing stands out now.".to_owned()));
    }
    lines
}
