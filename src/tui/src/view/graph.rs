//! Graphs, drawn with a pen.

use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use super::pen::Pen;
use super::theme::Ink;
use super::widgets::Spark;

/// Draws a [`Spark`].
pub(super) fn spark(pen: &mut Pen<'_>, area: Rect, ink: Ink, samples: &[Option<f64>]) {
    let theme = pen.theme;
    Spark { theme, ink, samples }.render(area, pen.buffer());
}
