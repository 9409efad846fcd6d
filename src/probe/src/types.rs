//! The data that the probe reports. A figure that is not available gives the reason; it is never 0.

mod hint;

use std::sync::Arc;
use std::time::Duration;

pub use hint::{Hint, HintKind, HintSource, KvCached, Preallocation, Share};

/// A figure, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Reading<T> {
    /// The figure.
    Value(T),
    /// Not queried yet.
    #[default]
    Pending,
    /// The driver or card does not offer it.
    NotSupported,
    /// The query needs more rights.
    NoPermission,
    /// The query failed, or its figure cannot be right; the text says why.
    Failed(String),
}

impl<T> Reading<T> {
    /// Returns the figure, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Reading::Value(v) => Some(v),
            _ => None,
        }
    }

    /// Converts the reason why there is no figure into a reading of another type.
    ///
    /// A reading that has a figure becomes [`Reading::Pending`].
    pub(crate) fn none<U>(self) -> Reading<U> {
        match self {
            Reading::Value(_) | Reading::Pending => Reading::Pending,
            Reading::NotSupported => Reading::NotSupported,
            Reading::NoPermission => Reading::NoPermission,
            Reading::Failed(text) => Reading::Failed(text),
        }
    }

    /// Returns the reason why there is no figure, as text; `None` if there is one.
    pub fn reason(&self) -> Option<String> {
        match self {
            Reading::Value(_) => None,
            Reading::Pending => Some("not measured".into()),
            Reading::NotSupported => Some("not supported".into()),
            Reading::NoPermission => Some("no permission".into()),
            Reading::Failed(text) => Some(text.clone()),
        }
    }
}

/// Device memory in bytes, as far as the driver's figures are plausible. The figures need not add up: on a GPU that
/// uses the host's memory, the rest is used by programs of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Memory {
    /// Size of the memory.
    pub total: u64,
    /// Memory held by processes, and by the driver too if `reserved` is `None`. `None` if the driver gives no plausible
    /// figure. On a GPU that uses the host's memory this is the sum of NVML's figures for its processes, and `None` if
    /// NVML lacks one of them.
    pub used: Option<u64>,
    /// Memory held by the driver and firmware for themselves. `None` if `used` includes it (drivers without NVML's
    /// memory v2 call, before R510, and GPUs that use the host's memory).
    pub reserved: Option<u64>,
    /// Available memory according to the driver; on a GPU that uses the host's memory, the host's `MemAvailable`.
    /// `None` if the driver gives no plausible figure.
    pub free: Option<u64>,
    /// The driver's figures that cannot be right.
    pub doubted: Doubted,
}

/// Figures of a device's memory that are larger than possible, in bytes, as the driver gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Doubted {
    /// The rejected figure for used memory.
    pub used: Option<u64>,
    /// The rejected figure for reserved memory.
    pub reserved: Option<u64>,
    /// The rejected figure for free memory.
    pub free: Option<u64>,
}

impl Doubted {
    /// Iterates over the rejected figures with their names.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let figures = [("used", self.used), ("reserved", self.reserved), ("free", self.free)];
        figures.into_iter().filter_map(|(name, said)| Some((name, said?)))
    }
}

/// How a process uses a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessKind {
    /// Listed as a compute process.
    Compute,
    /// Listed as a graphics process.
    Graphics,
    /// Listed as both.
    Both,
}

/// A process as NVML lists it for one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    /// Process id in the namespace that NVML uses (usually the host's).
    pub pid: u32,
    /// Compute, graphics or both.
    pub kind: ProcessKind,
    /// Bytes on this GPU, without managed memory. Not available under some drivers and in some containers.
    pub used: Reading<u64>,
    /// The GPU instance it runs in when MIG is on, as in [`MigDevice::instance`].
    pub mig: Option<u32>,
    /// Whether it shares the GPU through a server of CUDA's Multi-Process Service.
    pub mps: bool,
}

/// Whether a GPU answers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum GpuState {
    /// It answers.
    #[default]
    Present,
    /// It fell off the bus or needs a reset; the text is the driver's. Its figures are the last known ones.
    Lost(String),
}

/// A MIG device of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MigDevice {
    /// Its index on the parent GPU.
    pub index: u32,
    /// GPU instance id, under which processes are listed. Several MIG devices may share an instance.
    pub instance: Option<u32>,
    /// Its UUID as text: `MIG-` and 16 bytes, or on drivers before R470 `MIG-GPU-UUID/INSTANCE/COMPUTE INSTANCE`.
    pub uuid: String,
    /// The profile, such as `1g.10gb`, or the whole name if it names no profile.
    pub name: String,
    /// Memory of the MIG device alone.
    pub memory: Reading<Memory>,
    /// Processes on it, by pid.
    pub processes: Reading<Vec<GpuProcess>>,
}

impl MigDevice {
    /// Returns the 16 bytes of its UUID, if it has its own.
    pub fn uuid_bytes(&self) -> Option<[u8; 16]> {
        gpumem_text::uuid::bytes(&self.uuid)
    }
}

/// The figures that NVML measures on a GPU besides memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sensors {
    /// Percent of time during which a kernel ran.
    pub utilization: Reading<u32>,
    /// Percent of time during which memory was read or written.
    pub memory_utilization: Reading<u32>,
    /// Temperature in degrees Celsius.
    pub temperature: Reading<u32>,
    /// Power draw now, in milliwatts.
    pub power: Reading<u32>,
    /// Power limit in milliwatts.
    pub power_limit: Reading<u32>,
    /// Bytes per second from host to device.
    pub pcie_rx: Reading<u64>,
    /// Bytes per second from device to host.
    pub pcie_tx: Reading<u64>,
}

impl Sensors {
    /// Returns the readings of a device without sensors.
    pub fn not_supported() -> Sensors {
        Sensors {
            utilization: Reading::NotSupported,
            memory_utilization: Reading::NotSupported,
            temperature: Reading::NotSupported,
            power: Reading::NotSupported,
            power_limit: Reading::NotSupported,
            pcie_rx: Reading::NotSupported,
            pcie_tx: Reading::NotSupported,
        }
    }
}

/// One GPU, as NVML sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    /// NVML's index.
    pub index: u32,
    /// UUID as 16 bytes, the key that joins it to channels.
    pub uuid: Option<[u8; 16]>,
    /// Marketing name.
    pub name: String,
    /// PCI bus id.
    pub pci: String,
    /// Whether it answers.
    pub state: GpuState,
    /// Memory of the whole GPU, from NVML's memory v2 call if the driver has it.
    pub memory: Reading<Memory>,
    /// The host's memory, if the GPU has no memory of its own (such as GB10).
    pub host: Option<HostMemory>,
    /// Utilization, temperature, power and PCIe throughput.
    pub sensors: Sensors,
    /// Age of the two PCIe figures, which are measured separately at a slower pace.
    pub pcie_age: Option<Duration>,
    /// Processes on it, by pid, except those on its MIG devices.
    pub processes: Reading<Vec<GpuProcess>>,
    /// MIG devices; empty when MIG is off.
    pub mig: Vec<MigDevice>,
}

impl Gpu {
    /// Iterates over every process on it, including those on its MIG devices. A process on two MIG devices appears
    /// twice.
    pub fn all_processes(&self) -> impl Iterator<Item = &GpuProcess> {
        let parts = self.mig.iter().map(|part| &part.processes);
        [&self.processes]
            .into_iter()
            .chain(parts)
            .filter_map(Reading::value)
            .flatten()
    }
}

/// Whether NVML answers, and if not, why. The dashboard may simulate a GPU only on [`NvmlState::Missing`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum NvmlState {
    /// NVML is still loading (14 ms for the library, 7 ms for the first device).
    #[default]
    Starting,
    /// It answers.
    Ready,
    /// No `libnvidia-ml.so.1` on this machine.
    Missing,
    /// The library is there but fails: driver not loaded, version mismatch, no permission.
    Failed {
        /// The error of NVML or of the loader.
        error: String,
        /// What the user can do.
        hint: String,
    },
}

/// One sample of everything that NVML reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NvmlSample {
    /// Whether NVML answers.
    pub state: NvmlState,
    /// Version of the driver, such as `580.159.04`.
    pub driver: Option<String>,
    /// Highest CUDA version of the driver, as (major, minor).
    pub cuda: Option<(u32, u32)>,
    /// The GPUs by NVML index.
    pub gpus: Vec<Gpu>,
}

/// A process as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Process id in the namespace of this process.
    pub pid: u32,
    /// User name, or the user id if it has no name.
    pub user: String,
    /// Command line, cleaned of control characters, at most 512 characters.
    pub command: String,
    /// What tells it from others: the script, module or model that it runs, or the title that it gave itself. Cleaned, at most
    /// 80 characters.
    pub label: String,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
    /// The parent's pid; `None` if the parent is not in the pid namespace of this process.
    pub parent: Option<u32>,
    /// Resident host memory in bytes, at most ten look-ups old.
    pub rss: u64,
    /// Whether a signal or a debugger has stopped it.
    pub stopped: bool,
    /// What explains its memory; empty until `HintReader` fills it in.
    pub hints: Arc<[Hint]>,
}

/// The host's memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// Size of the memory.
    pub total: u64,
    /// Memory that a new program could get (`MemAvailable`).
    pub available: u64,
    /// Unused memory (`MemFree`). It is less than `available`, which includes caches that the kernel drops when memory
    /// is needed. On GPUs that use the host's memory, CUDA reports this as the device's free memory.
    pub free: u64,
    /// The limit of this process's control group, such as that of a container or a batch job; `None` if no limit is set
    /// or it cannot be read.
    pub limit: Option<MemoryLimit>,
}

/// The memory limit of a control group, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Most memory that the processes of the group may have together; never more than the host has.
    pub total: u64,
    /// Memory that is not charged to the group. A program may get more than this: cached files are charged too, and the
    /// kernel drops them when memory is needed.
    pub free: u64,
}
