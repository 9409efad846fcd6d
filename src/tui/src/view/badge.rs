//! The label of what is simulated: as a word where there is room for it, shorter where there is not, and never cut.

use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Span;

use super::Screen;
use super::theme::Ink;
use crate::model::{DeviceKind, Model};
use crate::wrap::width;

/// The fullest first.
const WORDS: [&str; 3] = [" SIMULATED ", " SIM ", "SIM"];
/// What a place that must say it has to leave.
pub(super) const LEAST: u16 = 5;

/// What says it in the first line of an area from column `x` on, in the fullest words of at most `room` columns, if there is room.
pub(super) fn label(screen: &mut Screen<'_>, area: Rect, x: u16, room: u16) -> Option<Span<'static>> {
    let room = room.min(area.width.saturating_sub(x));
    let word = WORDS.into_iter().find(|word| width(word) <= room)?;
    screen.labelled |= area.height > 0;
    let style = screen.theme.ink(Ink::Warning).add_modifier(Modifier::REVERSED);
    Some(Span::styled(word, style))
}

/// Says it in a corner of a view that is about something simulated, and had no room to say so.
pub(super) fn make_sure(screen: &mut Screen<'_>, body: Rect, is_about_simulated: bool) {
    if screen.labelled || !is_about_simulated {
        return;
    }
    // In a frame's line, where there is one.
    let frame = u16::from(body.width > LEAST + 2);
    let room = if body.width < LEAST { 3.min(body.width) } else { LEAST };
    let x = body.width - room - frame;
    if let Some(label) = label(screen, body, x, room) {
        let place = Rect::new(body.x + x, body.y, room, 1);
        screen.render(label, place.intersection(body));
    }
}

/// Whether there is nothing real to look at.
pub(super) fn all_simulated(model: &Model) -> bool {
    let devices = &model.world().devices;
    !devices.is_empty() && devices.iter().all(|d| d.kind == DeviceKind::Simulated)
}
