//! How far the figures that are shown reach.

use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use super::pen::Pen;
use super::widgets::HistoryGraph;
pub(super) use super::widgets::{SECONDS, used_shares as used};
use crate::model::{Device, DeviceKind, DeviceState, Model};
use gpumem_text::units;

/// When a device's newest figures are of: those that are shown while the user pauses, or the driver does not answer, grow old.
pub(super) fn newest(model: &Model, device: &Device) -> String {
    match (&device.state, device.history.long.back()) {
        (DeviceState::Gone | DeviceState::Lost(_), _) => "last known".to_owned(),
        (DeviceState::Present, Some(point)) if model.paused() => {
            format!("{} ago", units::age(model.now.saturating_sub(point.at)))
        }
        (DeviceState::Present, _) => match model.nvml_late_by() {
            Some(age) if device.kind == DeviceKind::Nvml => format!("{} ago", units::age(age)),
            _ => "now".to_owned(),
        },
    }
}

/// Draws a [`HistoryGraph`].
pub(super) fn draw(pen: &mut Pen<'_>, area: Rect, device: &Device, newest: &str) {
    let theme = pen.theme;
    HistoryGraph { theme, device, newest }.render(area, pen.buffer());
}
