//! What the benchmarks need of a device. [`crate::gpu`] has the CUDA one; tests have one whose times are a function of the
//! working set.

mod card;
pub(crate) mod claims;

pub use card::{Card, Peer};

/// A device to measure. Every call waits for its work, which takes less than half a second, so that the caller can stop between
/// two calls.
pub(crate) trait Rig {
    /// The device's attributes.
    fn card(&self) -> &Card;

    /// Lays the ring that [`Rig::chase`] follows: node `i` points to node `next[i]`.
    fn lay(&mut self, place: Place, next: &[u32]) -> Result<(), RigError>;

    /// Follows the ring that was laid last.
    fn chase(&mut self, chase: Chase) -> Result<Chased, RigError>;

    /// Computes `steps` multiply-adds, each from the result of the one before. `steps` is a multiple of 64.
    fn chain(&mut self, steps: u32) -> Result<Clocks, RigError>;

    /// Moves data by a kernel that fills the device.
    fn stream(&mut self, stream: Stream) -> Result<Moved, RigError>;

    /// Copies bytes by the driver.
    fn copy(&mut self, route: Route, bytes: u64) -> Result<Moved, RigError>;
}

/// Where a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// Shared memory of one SM; a node takes [`WORD`] bytes.
    Shared,
    /// The device's memory, behind its caches; a node takes a line of [`LINE`] bytes.
    Device,
    /// Memory of a peer GPU, by its number; nodes as in `Device`.
    Peer(u32),
    /// Pinned memory of the host, mapped for the device; nodes as in `Device`.
    PinnedHost,
}

/// Bytes from one node to the next in global memory: a line of the L1 and L2 caches from Volta on.
pub(crate) const LINE: u32 = 128;

/// Bytes of a node in shared memory.
pub(crate) const WORD: u32 = 4;

impl Place {
    /// Returns the bytes from one node to the next.
    pub(crate) fn stride(self) -> u32 {
        match self {
            Place::Shared => WORD,
            Place::Device | Place::Peer(_) | Place::PinnedHost => LINE,
        }
    }
}

/// A pointer chase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chase {
    /// The node to begin at. In shared memory it is always node 0.
    pub(crate) from: u32,
    /// How many loads before the clocks are read: a kernel begins with an empty L1. A multiple of 16, and 0 in shared memory.
    pub(crate) warm: u32,
    /// How many loads are timed; a multiple of 16.
    pub(crate) hops: u32,
    /// The load that is used.
    pub(crate) load: Load,
    /// The SM to run on; `None` leaves it to the device.
    pub(crate) sm: Option<u32>,
}

/// The instruction of a chase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// `ld.global.ca`: through L1.
    Ca,
    /// `ld.global.cg`: from L2 on.
    Cg,
    /// `ld.shared.u32` of an address.
    Shared,
    /// `ld.shared.u32` of an index, from which the address is computed.
    SharedIndex,
}

impl Load {
    /// Returns the instruction as PTX has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Load::Ca => "ld.global.ca.u64",
            Load::Cg => "ld.global.cg.u64",
            Load::Shared => "ld.shared.u32",
            Load::SharedIndex => "ld.shared.u32, indexed",
        }
    }
}

/// Time as a kernel read it on its SM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clocks {
    /// Cycles of the SM's clock (`clock64`).
    pub(crate) cycles: u64,
    /// Nanoseconds of the global timer.
    pub(crate) ns: u64,
}

/// A finished chase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chased {
    /// How long all hops took.
    pub(crate) clocks: Clocks,
    /// The node it ended at.
    pub(crate) end: u32,
    /// The SM it ran on.
    pub(crate) sm: u32,
}

/// What a kernel moves through the whole device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Operands of multiply-adds, so many per thread and chain; a multiple of 8.
    Registers(u32),
    /// Loads from shared memory, so many per thread; a multiple of 8.
    Shared(u32),
    /// Loads from L1, so many per thread; a multiple of 8.
    L1(u32),
    /// Reads of the first `bytes` of device memory, again and again, past L1.
    Read {
        /// How much memory.
        bytes: u64,
        /// How often.
        rounds: u32,
    },
    /// Writes of the first `bytes` of device memory.
    Write {
        /// How much memory.
        bytes: u64,
    },
    /// Copies of the first half of the first `bytes` of device memory to the second half.
    Copy {
        /// How much memory, both halves together.
        bytes: u64,
    },
}

/// Between which memories the driver copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Within device memory.
    DeviceToDevice,
    /// From a peer GPU, by its number, to the device (`cuMemcpyPeerAsync`).
    PeerToDevice(u32),
    /// From the device to a peer GPU.
    DeviceToPeer(u32),
    /// From pinned memory of the host to the device.
    PinnedToDevice,
    /// From the device to pinned memory of the host.
    DeviceToPinned,
    /// From pageable memory of the host to the device.
    PageableToDevice,
    /// From the device to pageable memory of the host.
    DeviceToPageable,
}

/// Bytes that were moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Bytes that were read plus bytes that were written where both are on the device; bytes copied over a bus once.
    pub(crate) bytes: u64,
    /// How long it took, from an event before it to an event behind it; for pageable memory by the host's clock.
    pub(crate) ns: u64,
    /// The clocks of one block, where the kernel reads them.
    pub(crate) clocks: Option<Clocks>,
}

/// A call of the device that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RigError(pub(crate) String);
