//! Devices: NVML's GPUs joined by UUID with the devices that channels publish.

use gpumem_channel::DeviceKind as PublishedKind;
use gpumem_probe::{GpuState, HostMemory, Reading, Sensors};

use super::channel::ChannelKey;
use super::history::History;
use super::partition::{Basis, Partition};

/// What makes a device the same one from sample to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum DeviceKey {
    /// A real device.
    Uuid([u8; 16]),
    /// A GPU whose UUID NVML does not tell.
    NvmlIndex(u32),
    /// A MIG device that has no UUID of 16 bytes (drivers before R470): indexes of its GPU and of itself.
    Part(u32, u32),
    /// A simulated device: private to the process that publishes it.
    Simulated(ChannelKey, u8),
}

impl DeviceKey {
    /// The identity of the device that `channel` publishes as number `index`.
    pub(crate) fn of(channel: ChannelKey, index: usize, device: &gpumem_channel::Device) -> DeviceKey {
        match device.kind {
            PublishedKind::Simulated => DeviceKey::Simulated(channel, index.min(255) as u8),
            _ => DeviceKey::Uuid(device.uuid),
        }
    }
}

/// Where a device is known from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// NVML lists it; channels may publish on it.
    #[default]
    Nvml,
    /// A CUDA device that only channels tell of (NVML is absent, failing, or hides it).
    Published,
    /// Simulated. Every view labels it SIMULATED.
    Simulated,
}

/// Whether a device answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeviceState {
    /// It does.
    #[default]
    Present,
    /// It fell off the bus; the text is the driver's. Figures are the last known.
    Lost(String),
    /// Its only publisher is gone. Figures are the last known.
    Gone,
}

/// Whether the two look the same: power is never still, and shown in whole watts.
fn look_alike(sensors: &Sensors, other: &Sensors) -> bool {
    let watts = |reading: &Reading<u32>| match reading {
        Reading::Value(milliwatts) => Reading::Value(milliwatts / 1000),
        none => none.clone(),
    };
    let shown = |s: &Sensors| Sensors {
        power: watts(&s.power),
        power_limit: watts(&s.power_limit),
        ..s.clone()
    };
    shown(sensors) == shown(other)
}

impl DeviceState {
    /// The state in a word, as every report has it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            DeviceState::Present => "present",
            DeviceState::Lost(_) => "lost",
            DeviceState::Gone => "gone",
        }
    }

    /// What a report for people says beside a device's name; nothing of one that is as it should be.
    pub(crate) fn said(&self) -> Option<String> {
        match self {
            DeviceState::Present => None,
            DeviceState::Lost(text) => Some(format!("LOST: {text}")),
            DeviceState::Gone => Some(self.word().to_owned()),
        }
    }

    /// Why it is in this state, where somebody tells.
    pub(crate) fn why(&self) -> Option<&str> {
        match self {
            DeviceState::Lost(text) => Some(text),
            DeviceState::Present | DeviceState::Gone => None,
        }
    }
}

impl From<&GpuState> for DeviceState {
    fn from(state: &GpuState) -> DeviceState {
        match state {
            GpuState::Present => DeviceState::Present,
            GpuState::Lost(text) => DeviceState::Lost(text.clone()),
        }
    }
}

/// What a MIG device is of its GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartOf {
    /// The GPU.
    pub gpu: DeviceKey,
    /// Its index on the GPU.
    pub index: u32,
    /// Its profile, `1g.10gb`.
    pub profile: String,
    /// Its UUID as NVML writes it, `MIG-...`.
    pub uuid: String,
}

/// A device as the dashboard shows it.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// Its identity.
    pub key: DeviceKey,
    /// Where it is known from.
    pub kind: DeviceKind,
    /// Short name: `GPU 0`, `GPU 0:1` (a MIG device), `SIM 4121`.
    pub label: String,
    /// Marketing name.
    pub name: String,
    /// UUID, where it is known.
    pub uuid: Option<[u8; 16]>,
    /// PCI bus id; empty when not known.
    pub pci: String,
    /// Whether it answers.
    pub state: DeviceState,
    /// Its memory, or why there is no figure.
    pub memory: Reading<Partition>,
    /// Its memory is the host's (GB10 and the like).
    pub shared_with_host: bool,
    /// Everything else NVML measures; `Pending` on devices NVML does not list.
    pub sensors: Sensors,
    /// The host's memory, where it is the device's and NVML tells of the device.
    pub host: Option<HostMemory>,
    /// Of which GPU it is a part, of a MIG device.
    pub part_of: Option<PartOf>,
    /// Live programs that publish on it.
    pub publishers: usize,
    /// The past.
    pub history: History,
}

impl Device {
    /// Whether the two look the same but for their past.
    pub(crate) fn looks_like(&self, other: &Device) -> bool {
        // Every field is named: a new one must be thought of here.
        let Device {
            key,
            kind,
            label,
            name,
            uuid,
            pci,
            state,
            memory,
            shared_with_host,
            sensors,
            host,
            part_of,
            publishers,
            history: _,
        } = self;
        (key, kind, label, name, uuid, pci)
            == (
                &other.key,
                &other.kind,
                &other.label,
                &other.name,
                &other.uuid,
                &other.pci,
            )
            && (state, memory, shared_with_host) == (&other.state, &other.memory, &other.shared_with_host)
            && look_alike(sensors, &other.sensors)
            && (host, part_of, publishers) == (&other.host, &other.part_of, &other.publishers)
    }

    /// Why the driver's own share of the memory is not told; `None` where it is, or nothing is known of the memory.
    pub(crate) fn driver_share_unknown(&self) -> Option<&'static str> {
        let memory = self.memory.value().filter(|m| m.driver.is_none())?;
        Some(match (memory.basis, self.shared_with_host) {
            (Basis::Publishers, _) => "only programs that publish are counted here: the driver does not tell",
            (Basis::Driver, true) => "the GPU uses the host's memory: what the driver holds of it is not told apart",
            (Basis::Driver, false) => "drivers before R510 do not tell it apart: it is part of other",
        })
    }

    /// UUID as NVML writes it, `GPU-xxxxxxxx-xxxx-...` or `MIG-...`.
    pub(crate) fn uuid_text(&self) -> Option<String> {
        match &self.part_of {
            Some(part) => Some(part.uuid.clone()).filter(|uuid| !uuid.is_empty()),
            None => self.uuid.as_ref().map(uuid_text),
        }
    }
}

/// A UUID as NVML writes it.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// A choice of one device (`--device`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Only {
    /// NVML's index.
    Index(u32),
    /// A MIG device by the index of its GPU and its own there, as containers are given them.
    Part(u32, u32),
    /// UUID, or the beginning of one.
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
    /// Whether `device` is the chosen one, or a part of it.
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
