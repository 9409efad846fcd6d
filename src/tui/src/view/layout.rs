//! Parts of areas, and texts that fit into them.

use ratatui::layout::Rect;

use crate::wrap::cut;

/// `n` lines from the top of an area, and what is left.
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

/// What is left, and `n` lines from the bottom.
pub(super) fn split_bottom(area: Rect, n: u16) -> (Rect, Rect) {
    split_top(area, area.height - n.min(area.height))
}

/// `n` columns from the left, and what is left.
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

/// What stands where a text is cut.
pub(super) const CUT: &str = "…";

/// A text cut to so many columns, with an ellipsis when something is missing.
pub(super) fn clip(text: &str, room: u16) -> String {
    cut(text, room, CUT)
}
