//! What the model counts, with the driver's meaning of each figure.

use gpumem_channel::{ManagedCounters, ManagedMoves};

use super::Processor;

/// Why pages moved. The driver's events have the same causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The program asked for it by a prefetch call.
    User,
    /// A page fault.
    Fault,
    /// The driver's own prefetch beside a fault.
    Prefetch,
    /// The GPU was full.
    Eviction,
}

/// Which way pages moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToGpu,
    ToCpu,
}

impl Direction {
    pub(super) fn to(who: Processor) -> Direction {
        match who {
            Processor::Cpu => Direction::ToCpu,
            Processor::Gpu => Direction::ToGpu,
        }
    }
}

/// The moves of one cause in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moves {
    /// Copies, one for each contiguous run of pages.
    pub(crate) migrations: u64,
    pub(crate) bytes: u64,
}

/// What happened, and the time it would have taken. Memory that is filled with zeroes when it is first touched does not count as
/// moved, nor does what a GPU reads from the host's memory without moving it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    moves: [[Moves; 4]; 2],
    /// CPU page faults.
    pub(crate) cpu_faults: u64,
    /// Entries of the GPU's fault buffer, one for each page that faulted.
    pub(crate) gpu_faults: u64,
    /// Batches that the GPU's faults came in.
    pub(crate) batches: u64,
    /// Blocks of 2 MiB that were evicted.
    pub(crate) evicted: u64,
    /// Pages that got a second copy.
    pub(crate) duplicated: u64,
    /// Copies that were dropped because the page was written.
    pub(crate) invalidated: u64,
    /// Pages that were found to be thrashing.
    pub(crate) thrashing: u64,
    /// Times that a processor was held up because a page bounced.
    pub(crate) throttled: u64,
    /// Pages of the host's memory that were mapped into the GPU.
    pub(crate) remote: u64,
    /// Modelled time in nanoseconds.
    pub(crate) ns: u64,
}

impl Counters {
    /// Returns the moves of one cause in one direction.
    pub(crate) fn moves(&self, direction: Direction, cause: Cause) -> Moves {
        self.moves[direction as usize][cause as usize]
    }

    /// Returns all bytes that moved in one direction.
    pub(crate) fn bytes(&self, direction: Direction) -> u64 {
        self.moves[direction as usize].iter().map(|moves| moves.bytes).sum()
    }

    /// Returns them as a publisher describes them.
    pub(crate) fn published(&self) -> ManagedCounters {
        let of = |direction: Direction| {
            [Cause::User, Cause::Fault, Cause::Prefetch, Cause::Eviction].map(|cause| {
                let moves = self.moves(direction, cause);
                ManagedMoves {
                    count: moves.migrations,
                    bytes: moves.bytes,
                }
            })
        };
        ManagedCounters {
            to_gpu: of(Direction::ToGpu),
            to_cpu: of(Direction::ToCpu),
            cpu_faults: self.cpu_faults,
            gpu_faults: self.gpu_faults,
            thrashing: self.thrashing,
            throttled: self.throttled,
            remote: self.remote,
        }
    }

    pub(super) fn moved(&mut self, direction: Direction, cause: Cause, migrations: u64, bytes: u64) {
        let moves = &mut self.moves[direction as usize][cause as usize];
        moves.migrations += migrations;
        moves.bytes += bytes;
    }
}
