//! What can be the matter, and whose memory it is.

use serde::Serialize;

/// The allocator that could not give memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allocator {
    /// The GPU's memory.
    Device,
    /// Page-locked memory of the host.
    PinnedHost,
    /// The host's memory, or that of a cgroup.
    Host,
    /// `/dev/shm`.
    SharedMemory,
    /// Registration of memory with a network card: locked memory.
    Registration,
    /// Virtual addresses.
    AddressSpace,
    /// The limit of a layer that shares a GPU among containers.
    VirtualLimit,
    /// Shared memory or registers of a multiprocessor.
    OnChip,
    /// No memory failed.
    None,
    /// The text does not say.
    Unknown,
}

impl Allocator {
    /// Says in words whose memory it is.
    pub fn words(self) -> &'static str {
        match self {
            Allocator::Device => "GPU memory",
            Allocator::PinnedHost => "pinned host memory, not the GPU's",
            Allocator::Host => "host memory (RAM or cgroup), not the GPU's",
            Allocator::SharedMemory => "/dev/shm, not the GPU's memory",
            Allocator::Registration => "locked memory for network registration, not the GPU's",
            Allocator::AddressSpace => "virtual addresses, not memory",
            Allocator::VirtualLimit => "the limit of a GPU-sharing layer, not the card's",
            Allocator::OnChip => "on-chip memory of a kernel, not GPU memory",
            Allocator::None => "none",
            Allocator::Unknown => "not said",
        }
    }
}

/// The cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The process fills the device with memory that it uses.
    Exhausted,
    /// Enough is cached or free, and not in one piece.
    Fragmentation,
    /// Other processes have what is missing.
    OtherProcess,
    /// One request is larger than the device.
    RequestTooLarge,
    /// Pools of CUDA graphs have much of the memory.
    GraphPools,
    /// The process has much outside of PyTorch's allocator.
    OutsideAllocator,
    /// The process may not have more: `set_per_process_memory_fraction`.
    ProcessLimit,
    /// A layer that shares the GPU does not allow more.
    VirtualLimit,
    /// A pool's own limit.
    PoolLimit,
    /// The framework took nearly everything when it started, and a library has no room.
    Preallocation,
    /// What a serving engine plans with does not fit.
    Budget,
    /// Another process's memory changed while an engine measured.
    NeighbourFreed,
    /// While CUDA graphs were captured.
    GraphCapture,
    /// While an engine woke up, and something else had its memory.
    WakeUp,
    /// The host's memory or a cgroup's is full.
    HostMemory,
    /// Host memory could not be pinned.
    PinnedMemory,
    /// `/dev/shm` is full.
    SharedMemory,
    /// `/dev/shm` may not be used.
    SharedMemoryRights,
    /// Memory may not be locked: `ulimit -l`.
    Memlock,
    /// Virtual addresses could not be had.
    AddressSpace,
    /// A kernel needs more shared memory or registers than there are.
    OnChip,
    /// CPU and GPU share their memory, and the host has taken it.
    UnifiedMemory,
    /// More was free than was asked for.
    NotCapacity,
    /// The figures contradict each other.
    Inconsistent,
    /// It looks like a lack of memory, and is none.
    NotMemory,
    /// The card is at fault.
    Hardware,
    /// The program went on.
    Warning,
    /// Something failed for lack of memory; why is not in the text.
    Incomplete,
    /// Nothing failed for lack of memory.
    Nothing,
}

impl Verdict {
    /// Names it.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Exhausted => "this process uses nearly all of the memory",
            Verdict::Fragmentation => "fragmentation: enough is free, but not in one piece",
            Verdict::OtherProcess => "other processes have the memory",
            Verdict::RequestTooLarge => "one request is larger than the device",
            Verdict::GraphPools => "pools of CUDA graphs have the memory",
            Verdict::OutsideAllocator => "memory outside of the framework's allocator",
            Verdict::ProcessLimit => "a limit of this process",
            Verdict::VirtualLimit => "the limit of a GPU-sharing layer",
            Verdict::PoolLimit => "the limit of a memory pool",
            Verdict::Preallocation => "preallocation leaves no room for libraries",
            Verdict::Budget => "the serving engine's budget does not fit",
            Verdict::NeighbourFreed => "another process's memory changed while the engine measured",
            Verdict::GraphCapture => "capturing CUDA graphs",
            Verdict::WakeUp => "waking up while something else has the memory",
            Verdict::HostMemory => "host memory is full",
            Verdict::PinnedMemory => "host memory could not be pinned",
            Verdict::SharedMemory => "/dev/shm is full",
            Verdict::SharedMemoryRights => "no permission to use /dev/shm",
            Verdict::Memlock => "the limit of locked memory is too low",
            Verdict::AddressSpace => "address space",
            Verdict::OnChip => "a kernel needs more on-chip memory than there is",
            Verdict::UnifiedMemory => "host programs or the page cache use the memory that CPU and GPU share",
            Verdict::NotCapacity => "more was free than was asked for: not capacity",
            Verdict::Inconsistent => "the figures contradict each other",
            Verdict::NotMemory => "not out of memory",
            Verdict::Hardware => "hardware error of the GPU",
            Verdict::Warning => "a warning: the program went on",
            Verdict::Incomplete => "out of memory; the text does not say why",
            Verdict::Nothing => "nothing failed for lack of memory",
        }
    }

    /// Whether something failed: the exit code says so.
    pub fn is_failure(self) -> bool {
        !matches!(self, Verdict::Warning | Verdict::Nothing)
    }

    /// Whether it says why.
    pub fn is_certain(self) -> bool {
        !matches!(self, Verdict::Incomplete | Verdict::Inconsistent | Verdict::Nothing)
    }
}
