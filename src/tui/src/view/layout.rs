//! Splits areas, and cuts texts to fit into them.

use ratatui::layout::Rect;

use crate::wrap::cut;

/// Splits off `n` lines at the top; returns them and the rest.
pub(super) fn split_top(area: Rect, n: u16) -> (Rect, Rect) {
    let n = n.min(area.height);
    (
        Rect { height: n, ..area },
        Rect {
            y: area.y + n,
            height: area.height - n,
            ..area
        },
    )
}

/// Splits off `n` lines at the bottom; returns the rest and them.
pub(super) fn split_bottom(area: Rect, n: u16) -> (Rect, Rect) {
    split_top(area, area.height - n.min(area.height))
}

/// Splits off `n` columns at the left; returns them and the rest.
pub(super) fn split_left(area: Rect, n: u16) -> (Rect, Rect) {
    let n = n.min(area.width);
    (
        Rect { width: n, ..area },
        Rect {
            x: area.x + n,
            width: area.width - n,
            ..area
        },
    )
}

/// Stands at the end of a cut text.
pub(super) const ELLIPSIS: &str = "…";

/// Cuts a text to `room` columns, with an ellipsis if something is missing.
pub(super) fn clip(text: &str, room: u16) -> String {
    cut(text, room, ELLIPSIS)
}
