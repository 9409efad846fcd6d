//! Managed (unified) memory as a publisher describes it.

use crate::record::StringId;

/// Bytes of a block of managed memory, the unit in which NVIDIA's driver manages it.
pub const MANAGED_BLOCK: u64 = 2 << 20;

/// Where a program advised the driver to keep managed memory (`cuMemAdvise`, preferred location).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preferred {
    /// It gave no such advice.
    #[default]
    Nowhere,
    /// In the host's memory.
    Cpu,
    /// In the memory of the range's device.
    Device,
    /// A place that this reader does not know.
    Unknown(u8),
}

/// An allocation of managed memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagedRange {
    /// First address.
    pub addr: u64,
    /// Bytes; never 0.
    pub size: u64,
    /// Index into the channel's devices: the one that it was allocated for. Its pages may be on any.
    pub device: u8,
    /// Where the program advised the driver to keep it.
    pub preferred: Preferred,
    /// Whether the program advised the driver that it is mostly read.
    pub read_mostly: bool,
    /// The tag under which it was allocated.
    pub tag: StringId,
    /// When it was allocated, or advice on it last changed: nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
}

/// A block of [`MANAGED_BLOCK`] bytes, and where its pages are.
///
/// Of its 32 parts of 64 KiB, lowest first, each word below has one bit. They have the meaning of the driver's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagedBlock {
    /// First address; a multiple of [`MANAGED_BLOCK`].
    pub addr: u64,
    /// Its 512 pages of 4 KiB, lowest first, that the CPU can reach without a fault.
    pub on_cpu: [u64; 8],
    /// Parts with pages on the GPU.
    pub on_gpu: u32,
    /// Parts in the host's memory because they were evicted, which the CPU has not touched since.
    pub evicted: u32,
    /// Bytes that moved to the GPU so far.
    pub to_gpu: u64,
    /// Bytes that moved to the CPU so far.
    pub to_cpu: u64,
    /// Migrations so far.
    pub moves: u32,
    /// Whether pages of it moved back and forth so often that the driver noticed.
    pub thrashed: bool,
}

/// Number and bytes of migrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagedMoves {
    /// Migrations.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What happened to managed memory so far, with the meaning of the driver's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagedCounters {
    /// Migrations to the GPU, by cause: a call of the program, a fault, the driver's prefetch beside one, eviction.
    pub to_gpu: [ManagedMoves; 4],
    /// Migrations to the CPU, by the same causes.
    pub to_cpu: [ManagedMoves; 4],
    /// Faults of the CPU.
    pub cpu_faults: u64,
    /// Entries of the GPU's fault buffer.
    pub gpu_faults: u64,
    /// Pages that moved back and forth so often that the driver noticed.
    pub thrashing: u64,
    /// How often a processor was held up because of that.
    pub throttled: u64,
    /// Pages that were mapped for the GPU and stay in the host's memory.
    pub remote: u64,
}

/// Figures of a publisher's managed memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagedFigures {
    /// Ranges that did not fit into the table.
    pub ranges_left_out: u64,
    /// Their bytes.
    pub bytes_left_out: u64,
    /// What happened so far, if the publisher knows it.
    pub counters: Option<ManagedCounters>,
}

/// Managed memory of a publisher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managed {
    /// Its ranges by address, which do not overlap.
    pub ranges: Vec<ManagedRange>,
    /// Its blocks by address, each once, as far as the publisher knows where pages are.
    pub blocks: Vec<ManagedBlock>,
    /// Its figures.
    pub figures: ManagedFigures,
}
