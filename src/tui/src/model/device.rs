//! Devices: NVML's GPUs joined by UUID with the devices that channels publish.

use gpumem_channel::DeviceKind as PublishedKind;
use gpumem_probe::{GpuState, HostMemory, Reading, Sensors};

use super::channel::ChannelKey;
use super::history::History;
use super::partition::{Basis, Partition};

/// The identity of a device across samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum DeviceKey {
    /// A real device.
    Uuid([u8; 16]),
    /// A GPU whose UUID NVML does not report, by NVML's index.
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
    /// A CUDA device known only from channels, because NVML is absent, fails or hides it.
    Published,
    /// It is simulated. Every view labels it SIMULATED.
    Simulated,
}

/// Whether a device answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeviceState {
    /// It answers.
    #[default]
    Present,
    /// It fell off the bus; the text is the driver's. Figures are the last known.
    Lost(String),
    /// Its only publisher is gone. Figures are the last known.
    Gone,
}

/// Checks whether two sets of sensors are drawn alike. Power changes all the time and is shown in whole watts.
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
    /// Returns the state in one word, for reports.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            DeviceState::Present => "present",
            DeviceState::Lost(_) => "lost",
            DeviceState::Gone => "gone",
        }
    }

    /// Returns the note that a text report puts beside the device's name; `None` while it answers.
    pub(crate) fn said(&self) -> Option<String> {
        match self {
            DeviceState::Present => None,
            DeviceState::Lost(text) => Some(format!("LOST: {text}")),
            DeviceState::Gone => Some(self.word().to_owned()),
        }
    }

    /// Returns the reason for the state, if one is known.
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

/// The place of a MIG device on its GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartOf {
    /// The GPU.
    pub gpu: DeviceKey,
    /// The index of the MIG device on the GPU.
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
    /// Whether it uses the host's memory (GB10 and the like).
    pub shared_with_host: bool,
    /// Everything else that NVML measures; `Pending` on devices that NVML does not list.
    pub sensors: Sensors,
    /// The host's memory, if the device uses it and NVML lists the device.
    pub host: Option<HostMemory>,
    /// The GPU that it is a part of, if it is a MIG device.
    pub part_of: Option<PartOf>,
    /// Number of live programs that publish on it.
    pub publishers: usize,
    /// Its memory over time, and its events.
    pub history: History,
}

impl Device {
    /// Checks whether the two are drawn alike, apart from their histories.
    pub(crate) fn looks_like(&self, other: &Device) -> bool {
        // Every field is named, so that a new field has to be considered here.
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

    /// Returns why the driver's own share of the memory is not known; `None` if it is, or if nothing is known of the memory.
    pub(crate) fn driver_share_unknown(&self) -> Option<&'static str> {
        let memory = self.memory.value().filter(|m| m.driver.is_none())?;
        Some(match (memory.basis, self.shared_with_host) {
            (Basis::Publishers, _) => "the driver reports nothing here: only programs that publish are counted",
            (Basis::Driver, true) => "the GPU uses the host's memory: the driver's share of it is not reported",
            (Basis::Driver, false) => "drivers before R510 do not report it: it is part of other",
        })
    }

    /// Returns the UUID as NVML writes it, `GPU-xxxxxxxx-xxxx-...` or `MIG-...`.
    pub(crate) fn uuid_text(&self) -> Option<String> {
        match &self.part_of {
            Some(part) => Some(part.uuid.clone()).filter(|uuid| !uuid.is_empty()),
            None => self.uuid.as_ref().map(uuid_text),
        }
    }
}

/// Formats the UUID of a GPU as NVML writes it.
pub(super) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
