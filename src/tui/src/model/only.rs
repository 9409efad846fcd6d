//! The choice of devices by the user: `--device`, and `gpu:` in a filter.

use super::device::{Device, DeviceKey, DeviceKind, uuid_text};

/// A choice of one device, or of the simulated ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Only {
    /// NVML's index.
    Index(u32),
    /// A MIG device, by the index of its GPU and its index there, as for container runtimes.
    Part(u32, u32),
    /// A UUID, or the beginning of one.
    Uuid(String),
    /// Simulated devices.
    Simulated,
}

impl std::fmt::Display for Only {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Only::Index(index) => write!(f, "{index}"),
            Only::Part(gpu, index) => write!(f, "{gpu}:{index}"),
            Only::Uuid(text) => f.write_str(text),
            Only::Simulated => f.write_str("sim"),
        }
    }
}

impl Only {
    /// Reads an index (`0`, `0:1` for a MIG device), a UUID or its beginning, or `sim`. `None` if it is none of these.
    pub(crate) fn parse(text: &str) -> Option<Only> {
        if text.eq_ignore_ascii_case("sim") {
            return Some(Only::Simulated);
        }
        match text.parse() {
            // A longer number is the beginning of a UUID.
            Ok(index) if text.len() < 4 => return Some(Only::Index(index)),
            _ if is_uuid(text) => return Some(Only::Uuid(text.to_owned())),
            _ => {}
        }
        let (gpu, index) = text.split_once(':')?;
        Some(Only::Part(gpu.parse().ok()?, index.parse().ok()?))
    }

    /// Checks whether `device` is the chosen one, or a part of it.
    pub(crate) fn matches(&self, device: &Device) -> bool {
        let nvml = device.kind == DeviceKind::Nvml;
        match self {
            Only::Index(index) => {
                let label = format!("GPU {index}");
                let rest = device.label.strip_prefix(&label);
                nvml && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            }
            Only::Part(gpu, index) => nvml && device.label == format!("GPU {gpu}:{index}"),
            Only::Uuid(text) => {
                let whole = device.part_of.as_ref().and_then(|part| match part.gpu {
                    DeviceKey::Uuid(uuid) => Some(uuid_text(&uuid)),
                    _ => None,
                });
                let wanted = text.to_ascii_lowercase();
                [device.uuid_text(), whole].into_iter().flatten().any(|uuid| {
                    let uuid = uuid.to_ascii_lowercase();
                    uuid.starts_with(&wanted) || uuid.get(4..).is_some_and(|uuid| uuid.starts_with(&wanted))
                })
            }
            Only::Simulated => device.kind == DeviceKind::Simulated,
        }
    }
}

/// Checks whether a text may be a UUID or its beginning, with or without the prefixes that NVML writes.
fn is_uuid(text: &str) -> bool {
    let rest = ["mig-", "gpu-"].iter().fold(text, |rest, prefix| match rest.get(..4) {
        Some(begin) if begin.eq_ignore_ascii_case(prefix) => &rest[4..],
        _ => rest,
    });
    // On drivers before R470 the UUID of a MIG device has its instances after slashes.
    rest.len() >= 4 && !rest.starts_with('/') && rest.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, '-' | '/'))
}
