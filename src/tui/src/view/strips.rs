//! The block map, drawn with a pen.

use ratatui::layout::Rect;
use ratatui::widgets::StatefulWidget;

use super::pen::Pen;
use super::theme::Ink;
use super::widgets::BlockMapWidget;
pub(super) use super::widgets::{BlockMapState as Drawn, LOOKS, Seen, ink_of};
use crate::model::BlockMap;

/// Draws a [`BlockMapWidget`].
pub(super) fn draw(pen: &mut Pen<'_>, area: Rect, map: &BlockMap, cursor: Option<u64>, zoom: u8) -> Drawn {
    let mut drawn = Drawn::default();
    let theme = pen.theme;
    let widget = BlockMapWidget {
        theme,
        map,
        cursor,
        zoom,
    };
    widget.render(area, pen.buffer(), &mut drawn);
    drawn
}

/// Draws the sign of one of [`LOOKS`].
pub(super) fn sign(pen: &mut Pen<'_>, area: Rect, x: u16, y: u16, look: Option<Ink>) {
    let sign = super::widgets::sign(&pen.theme, look);
    pen.text(area, x, y, &sign.content, sign.style);
}
