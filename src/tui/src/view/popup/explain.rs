//! The shown step of the demo in full.

use ratatui::layout::Rect;
use ratatui::widgets::Paragraph;

use crate::view::{Screen, demo};

/// The most columns of the popup. Longer lines are hard to read.
const WIDTH: u16 = 100;

/// Draws it, scrolled by `scroll` lines if it does not fit.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, scroll: u16) {
    let wide = area.width.min(WIDTH);
    let lines = demo::explanation(screen, wide.saturating_sub(4));
    let (inside, scroll) = super::page(screen, area, wide, lines.len() as u16, "This step", scroll);
    screen.render(Paragraph::new(lines).scroll((scroll, 0)), inside);
}
