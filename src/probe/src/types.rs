//! What the probe reports, as plain values. A figure that is not available says why; it is never 0.

use std::time::Duration;

/// A figure, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Reading<T> {
    /// The figure.
    Value(T),
    /// Not asked yet.
    #[default]
    Pending,
    /// The driver or card does not offer it.
    NotSupported,
    /// Only with more rights.
    NoPermission,
    /// The query failed; the text is the driver's.
    Failed(String),
}

impl<T> Reading<T> {
    /// The figure, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Reading::Value(v) => Some(v),
            _ => None,
        }
    }

    /// The same reason for another figure: that there is none.
    ///
    /// A figure is none of the reasons, and is taken for one that was not asked.
    pub(crate) fn none<U>(self) -> Reading<U> {
        match self {
            Reading::Value(_) | Reading::Pending => Reading::Pending,
            Reading::NotSupported => Reading::NotSupported,
            Reading::NoPermission => Reading::NoPermission,
            Reading::Failed(text) => Reading::Failed(text),
        }
    }

    /// Why there is no figure, in words; `None` when there is one.
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

/// Device memory in bytes, as far as what the driver says can be. Its figures need not add up: of a GPU that uses the
/// host's memory the rest is the host's programs'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// Held by processes, and where `reserved` is `None` by the driver too. `None`: nothing that can be is said. On a GPU
    /// that uses the host's memory what NVML counts for its processes, `None` where it does not count them all.
    pub used: Option<u64>,
    /// Held by the driver and firmware for themselves. `None`: not told apart from `used` (drivers without NVML's memory
    /// v2 call, before R510; GPUs that use the host's memory).
    pub reserved: Option<u64>,
    /// Available, as the driver says; of a GPU that uses the host's memory the host's `MemAvailable`. `None`: nothing
    /// that can be is said.
    pub free: Option<u64>,
    /// What the driver says and cannot be.
    pub doubted: Doubted,
}

/// Figures of a device's memory that are larger than they can be, in bytes as the driver says them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Doubted {
    /// Said to be used.
    pub used: Option<u64>,
    /// Said to be reserved.
    pub reserved: Option<u64>,
    /// Said to be free.
    pub free: Option<u64>,
}

impl Doubted {
    /// The figures with their names.
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
    /// Process id in the namespace NVML answers in (the host's, as a rule).
    pub pid: u32,
    /// Compute, graphics or both.
    pub kind: ProcessKind,
    /// Bytes on this GPU, managed memory not included. NVML cannot tell under some drivers and in some containers.
    pub used: Reading<u64>,
    /// GPU instance it runs in when MIG is on; the same number as [`MigDevice::instance`].
    pub mig: Option<u32>,
    /// It shares the GPU through a server of CUDA's Multi-Process Service.
    pub mps: bool,
}

/// Whether a GPU answers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum GpuState {
    /// It answers.
    #[default]
    Present,
    /// It fell off the bus or needs a reset; the text is the driver's. The figures are the last known.
    Lost(String),
}

/// A MIG device of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MigDevice {
    /// Its index on the parent.
    pub index: u32,
    /// GPU instance id, which processes are listed under. Several MIG devices may share one.
    pub instance: Option<u32>,
    /// Its own UUID text: `MIG-` and 16 bytes, on drivers before R470 `MIG-GPU-UUID/INSTANCE/COMPUTE INSTANCE`.
    pub uuid: String,
    /// Profile or name.
    pub name: String,
    /// Its memory.
    pub memory: Reading<Memory>,
    /// Processes on it, by pid.
    pub processes: Reading<Vec<GpuProcess>>,
}

impl MigDevice {
    /// The 16 bytes of its UUID, where it has one of its own.
    pub fn uuid_bytes(&self) -> Option<[u8; 16]> {
        crate::uuid::bytes(&self.uuid)
    }
}

/// What NVML measures of a GPU besides memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sensors {
    /// Percent of time a kernel ran.
    pub utilization: Reading<u32>,
    /// Percent of time memory was read or written.
    pub memory_utilization: Reading<u32>,
    /// Degrees Celsius.
    pub temperature: Reading<u32>,
    /// Milliwatts now.
    pub power: Reading<u32>,
    /// Milliwatts allowed.
    pub power_limit: Reading<u32>,
    /// Bytes per second from host to device.
    pub pcie_rx: Reading<u64>,
    /// Bytes per second from device to host.
    pub pcie_tx: Reading<u64>,
}

impl Sensors {
    /// Of a device that has none.
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
    /// Memory v2 where the driver has it.
    pub memory: Reading<Memory>,
    /// The host's memory, where the GPU has none of its own (GB10 and the like).
    pub host: Option<HostMemory>,
    /// What is measured besides memory.
    pub sensors: Sensors,
    /// How old the two PCIe figures are; they are measured apart from the others, at their own pace.
    pub pcie_age: Option<Duration>,
    /// Processes on it, by pid, but for those on its MIG devices.
    pub processes: Reading<Vec<GpuProcess>>,
    /// MIG devices; empty when MIG is off.
    pub mig: Vec<MigDevice>,
}

impl Gpu {
    /// Every process on it, those on its MIG devices too. A process on two of them is there twice.
    pub fn all_processes(&self) -> impl Iterator<Item = &GpuProcess> {
        let parts = self.mig.iter().map(|part| &part.processes);
        [&self.processes]
            .into_iter()
            .chain(parts)
            .filter_map(Reading::value)
            .flatten()
    }
}

/// Why NVML is not there. Decides whether the dashboard may simulate (only on [`NvmlState::Missing`]).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum NvmlState {
    /// Still loading (14 ms for the library, 7 ms for the first device).
    #[default]
    Starting,
    /// It answers.
    Ready,
    /// No `libnvidia-ml.so.1` on this machine.
    Missing,
    /// The library is there and fails: driver not loaded, version mismatch, no permission. Text of error and what to
    /// check.
    Failed {
        /// NVML's error.
        error: String,
        /// What the user can do.
        hint: String,
    },
}

/// One sample of everything NVML says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NvmlSample {
    /// Whether NVML answers.
    pub state: NvmlState,
    /// Driver version.
    pub driver: Option<String>,
    /// Highest CUDA version of the driver, as (major, minor).
    pub cuda: Option<(u32, u32)>,
    /// The GPUs by NVML index.
    pub gpus: Vec<Gpu>,
}

/// A process as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Process id in our namespace.
    pub pid: u32,
    /// User name, or the number when it has no name.
    pub user: String,
    /// Command line, cleaned of control characters, at most 512 characters.
    pub command: String,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
    /// Host memory resident, bytes; as of at most ten look-ups ago.
    pub rss: u64,
    /// A signal or a debugger has stopped it, until somebody lets it go on.
    pub stopped: bool,
}

/// The host's memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// All of it.
    pub total: u64,
    /// What a new program could have (`MemAvailable`).
    pub available: u64,
    /// What nothing is in (`MemFree`): less than `available`, by caches that the kernel drops when memory is wanted. CUDA
    /// gives it out as a device's free memory on GPUs that use the host's.
    pub free: u64,
    /// What the control group of this process may have, a container's or a batch job's; `None` where none is set or it
    /// cannot be read.
    pub limit: Option<MemoryLimit>,
}

/// The memory limit of a control group, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimit {
    /// All that the group's processes may have together; never more than the host has.
    pub total: u64,
    /// What is not charged to the group. Cached files are charged and the kernel drops them when memory is wanted, so
    /// that a program may get more than this.
    pub free: u64,
}
