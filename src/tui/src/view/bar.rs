//! Bars, drawn with a pen.

use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use super::pen::Pen;
use super::theme::Ink;
pub(super) use super::widgets::Part;
use super::widgets::{MemoryBar, Meter};

/// Draws a [`MemoryBar`].
pub(super) fn stacked(pen: &mut Pen<'_>, area: Rect, parts: &[Part]) {
    let theme = pen.theme;
    MemoryBar { theme, parts }.render(area, pen.buffer());
}

/// Draws a [`Meter`].
pub(super) fn meter(pen: &mut Pen<'_>, area: Rect, ink: Ink, share: f64) {
    let theme = pen.theme;
    Meter { theme, ink, share }.render(area, pen.buffer());
}
