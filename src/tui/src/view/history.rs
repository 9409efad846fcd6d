//! The age of the newest figures on the screen.

use gpumem_text::units;

use crate::model::{Device, DeviceKind, DeviceState, Model};

/// Returns the age of a device's newest figures. They grow old while the user pauses or the driver does not answer.
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
