//! Texts about a device.

use gpumem_probe::Reading;

use crate::model::{Basis, Device, DeviceState};
use crate::view::layout::clip;
use crate::wrap::width;
use gpumem_text::units::{self, Form};

/// Returns the facts about a device besides its memory, in at most `room` columns. Only wide screens have its PCI address.
pub(super) fn facts(device: &Device, room: u16, wide: bool) -> String {
    let host = device.shared_with_host.then_some("uses the host's memory");
    let address = wide.then_some(device.pci.as_str());
    // MemFree and not MemAvailable: CUDA does not count the kernel's caches as free.
    let free = device.host.map(|host| format!("MemFree {}", units::bytes(host.free)));
    let facts = [Some(device.name.as_str()), host, free.as_deref(), address];
    let mut text = String::new();
    for fact in facts.into_iter().flatten().filter(|fact| !fact.is_empty()) {
        let blank = if text.is_empty() { "" } else { "  " };
        let left = room.saturating_sub(width(&text) + width(blank));
        if left == 0 {
            break;
        }
        // A cut figure would be wrong.
        if Some(fact) == free.as_deref() && width(fact) > left {
            continue;
        }
        text = format!("{text}{blank}{}", clip(fact, left));
    }
    text
}

/// Returns a note that a device's figures are old, in a long and a short form.
pub(super) fn lost(device: &Device) -> Option<(&'static str, &'static str)> {
    match device.state {
        // There are no last known figures.
        DeviceState::Lost(_) if device.memory.value().is_none() => Some(("LOST", "LOST")),
        DeviceState::Lost(_) => Some(("LOST, last known figures", "LOST")),
        DeviceState::Gone => Some(("gone, last known figures", "gone")),
        DeviceState::Present => None,
    }
}

/// Returns `52.1 of 79.6 GiB used, 65%`, or `None` where there is no figure.
pub(super) fn used(device: &Device) -> Option<String> {
    let memory = device.memory.value()?;
    let (used, what) = match memory.basis {
        Basis::Driver => (memory.used(), "used"),
        Basis::Publishers => (memory.reserved(), "published"),
    };
    let amounts = Form::of_total(used, memory.total);
    let share = used_share(device).map_or(String::new(), |share| format!(", {share}"));
    Some(format!("{amounts} {what}{share}"))
}

/// How full a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fullness {
    /// There is room.
    Room,
    /// 90 % or more.
    Nearly,
    /// 97 % or more.
    Full,
}

/// Returns how full a device is.
pub(super) fn fullness(device: &Device) -> Fullness {
    let share = device
        .memory
        .value()
        .filter(|m| m.total > 0)
        .map_or(0.0, |m| m.used() as f64 / m.total as f64);
    match share {
        0.97.. => Fullness::Full,
        0.90.. => Fullness::Nearly,
        _ => Fullness::Room,
    }
}

/// Returns the share in use: `66%`.
pub(super) fn used_share(device: &Device) -> Option<String> {
    let memory = device.memory.value().filter(|m| m.total > 0)?;
    Some(units::percent(memory.used() as f64 / memory.total as f64))
}

/// Returns why there is no memory figure.
pub(super) fn no_memory(device: &Device) -> String {
    match &device.state {
        DeviceState::Lost(text) => format!("lost: {text}"),
        _ => reason(&device.memory, "memory").unwrap_or_default(),
    }
}

/// Returns why a reading has no figure, or `None` if it has one.
pub(super) fn reason<T>(reading: &Reading<T>, what: &str) -> Option<String> {
    match reading {
        Reading::Value(_) => None,
        Reading::Pending => Some(format!("{what}: not asked yet")),
        Reading::NotSupported => Some(format!("{what}: not supported by driver or card")),
        Reading::NoPermission => Some(format!("{what}: no permission")),
        Reading::Failed(text) => Some(format!("{what}: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::fixture;

    #[test]
    fn facts_that_do_not_fit_are_cut_or_left_out() {
        let mut device = fixture::h100().live.devices.remove(0);
        device.name = "NVIDIA GB10".into();
        device.shared_with_host = true;
        let cases = [
            (0, ""),
            (1, "…"),
            (10, "NVIDIA GB…"),
            (11, "NVIDIA GB10"),
            (13, "NVIDIA GB10"),
            (20, "NVIDIA GB10  uses t…"),
            (99, "NVIDIA GB10  uses the host's memory"),
        ];
        for (room, text) in cases {
            assert_eq!(facts(&device, room, false), text);
        }
        let address = "NVIDIA GB10  uses the host's memory  00000000:4E:00.0";
        assert_eq!(facts(&device, 99, true), address);
    }
}
