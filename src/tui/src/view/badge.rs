//! The label `SIMULATED`. It is shortened where there is little space, and never cut.

use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Span;

use super::Screen;
use super::theme::Ink;
use crate::model::{DeviceKind, Model};
use crate::wrap::width;

/// The label's texts, the longest first.
const LABELS: [&str; 3] = [" SIMULATED ", " SIM ", "SIM"];
/// Columns that have to be kept free for the label where it must be shown.
pub(super) const MIN_WIDTH: u16 = 5;

/// Returns the longest label that fits into `room` columns of the area's first line, from column `x` on.
pub(super) fn label(screen: &mut Screen<'_>, area: Rect, x: u16, room: u16) -> Option<Span<'static>> {
    let room = room.min(area.width.saturating_sub(x));
    let word = LABELS.into_iter().find(|word| width(word) <= room)?;
    screen.labelled |= area.height > 0;
    let style = screen.theme.ink(Ink::Warning).add_modifier(Modifier::REVERSED);
    Some(Span::styled(word, style))
}

/// Draws the label into a corner of a view of something simulated, unless it was drawn already.
pub(super) fn ensure_labelled(screen: &mut Screen<'_>, body: Rect, is_simulated: bool) {
    if screen.labelled || !is_simulated {
        return;
    }
    // The label goes on the frame's top line, left of the corner, where there is a frame.
    let frame = u16::from(body.width > MIN_WIDTH + 2);
    let room = if body.width < MIN_WIDTH {
        3.min(body.width)
    } else {
        MIN_WIDTH
    };
    let x = body.width - room - frame;
    if let Some(label) = label(screen, body, x, room) {
        let place = Rect::new(body.x + x, body.y, room, 1);
        screen.render(label, place.intersection(body));
    }
}

/// Checks whether every device is simulated.
pub(super) fn all_simulated(model: &Model) -> bool {
    let devices = &model.world().devices;
    !devices.is_empty() && devices.iter().all(|d| d.kind == DeviceKind::Simulated)
}
