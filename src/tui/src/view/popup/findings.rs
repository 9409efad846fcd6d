//! All findings in full. The lines below a view hold only some of them, and cut long ones.

use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::model::FindingKey;
use crate::view::Screen;
use crate::view::chrome::severity;
use crate::view::theme::Ink;
use crate::wrap::wrap;

/// The widest popup whose lines are still easy to read, with the frame.
const WIDE: u16 = 100;
/// Columns of the mark before a sentence.
const MARK: u16 = 2;

/// Draws the findings, of which one is chosen, scrolled by `scroll` lines if they do not fit.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, chosen: Option<&FindingKey>, scroll: u16) {
    let selected = screen.model.chosen_finding(chosen);
    let wide = area.width.min(WIDE);
    let (lines, spans) = lines(screen, wide.saturating_sub(4 + MARK), selected);
    let (inside, scroll) = super::page(screen, area, wide, lines.len() as u16, "Findings", scroll);
    screen.hits.finding_lines = (spans, inside.height);
    screen.render(Paragraph::new(lines).scroll((scroll, 0)), inside);
}

/// Returns the wrapped sentences with blank lines between them, and the lines of each.
fn lines(screen: &Screen<'_>, room: u16, selected: usize) -> (Vec<Line<'static>>, Vec<(u16, u16)>) {
    let (mut lines, mut spans) = (vec![], vec![]);
    for (number, finding) in screen.model.findings().enumerate() {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        let begin = lines.len() as u16;
        let (mark, style) = severity(screen, finding.severity);
        let chosen = number == selected;
        for (i, part) in wrap(&finding.text, room).into_iter().enumerate() {
            let mark = if i == 0 { mark } else { "" };
            let text = match chosen {
                true => Span::styled(part, screen.theme.ink(Ink::Strong).add_modifier(Modifier::REVERSED)),
                false => Span::raw(part),
            };
            lines.push(Line::from_iter([
                Span::styled(format!("{mark:<0$}", usize::from(MARK)), style),
                text,
            ]));
        }
        spans.push((begin, lines.len() as u16));
    }
    if lines.is_empty() {
        lines.push(Line::raw("  Nothing stands out now."));
    } else {
        let key = |name: &'static str| Span::styled(name, screen.theme.ink(Ink::Accent));
        lines.push(Line::default());
        lines.push(Line::from_iter([
            key("  \u{2191}\u{2193}"),
            Span::raw(" choose  "),
            key("Enter"),
            Span::raw(" shows it  "),
            key("d"),
            Span::raw(" dismisses it"),
        ]));
    }
    let findings = &screen.model.world().findings;
    let left_out = findings
        .iter()
        .filter(|finding| screen.model.is_dismissed(finding))
        .count();
    if left_out > 0 && !screen.model.narrowed() {
        lines.push(Line::styled(
            format!("  {left_out} dismissed, until they get worse"),
            screen.theme.ink(Ink::Dim),
        ));
    }
    (lines, spans)
}
