//! Graphs, drawn with a pen.

use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use super::pen::Pen;
use super::theme::Ink;
use super::widgets::{Spark, StackedGraph};
pub(super) use super::widgets::{ceiling, shade};

/// Draws one column of a [`StackedGraph`].
pub(super) fn stacked_column(pen: &mut Pen<'_>, area: Rect, x: u16, layers: &[Ink], tops: &[f64]) {
    let theme = pen.theme;
    let column = Rect {
        x: area.x + x,
        width: 1,
        ..area
    };
    let columns = &[Some(tops)];
    StackedGraph { theme, layers, columns }.render(column.intersection(area), pen.buffer());
}

/// Draws a [`Spark`].
pub(super) fn spark(pen: &mut Pen<'_>, area: Rect, ink: Ink, samples: &[Option<f64>]) {
    let theme = pen.theme;
    Spark { theme, ink, samples }.render(area, pen.buffer());
}
