//! The legend of a device's memory, drawn with a pen.

use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use super::pen::Pen;
pub(super) use super::widgets::Entry;
use super::widgets::Legend;

/// Draws a [`Legend`]; returns the column after it.
pub(super) fn draw(
    pen: &mut Pen<'_>,
    area: Rect,
    entries: Vec<Entry>,
    total: u64,
    (text, unit): (impl Fn(u64) -> String, &str),
) -> u16 {
    let legend = Legend {
        theme: pen.theme,
        entries,
        total,
        text,
        unit,
    };
    let line = legend.line(area.width);
    let end = line.width() as u16;
    line.render(area, pen.buffer());
    end
}
