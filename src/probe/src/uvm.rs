//! Managed (unified) memory of any process, from outside.
//!
//! - [`ManagedMemory`] finds a process's managed ranges and which of their pages the CPU can reach, from `/proc/PID/maps` and
//!   `/proc/PID/pagemap`. It needs the rights to read them and costs the process nothing.
//! - [`UvmWatch`] attaches the driver's trackers: counters of what moves, and on demand events that say why. It needs the right
//!   to trace the process, and costs it time at each CPU fault.
//! - [`UvmPolicy`] is the driver's policy in force.
//!
//! A page that is not present is not necessarily on the GPU: it may never have been touched, or have been evicted to the host's memory. Only
//! an event says where it went.

mod abi;
mod board;
mod causes;
mod helper;
mod policy;
mod ranges;
mod residency;
mod spans;
mod support;
mod sys;
mod tracker;
mod watch;

use std::io;

pub use board::Events;
pub use causes::{BLOCK, BlockMoves, Cause, Direction, EventSums, Moves, PARTS};
pub use helper::run_helper;
pub use policy::UvmPolicy;
pub use ranges::{ManagedMap, ManagedRange};
pub use residency::Resident;
pub use spans::{BLOCK_PAGES, Span, Spans};
pub use support::UvmSupport;
pub use tracker::Target;
pub use watch::{UvmWatch, Watching};

use crate::Root;

/// Bytes of a page on the machines whose page table is read: x86-64, and arm64 with 4 KiB pages.
pub const PAGE: u64 = 4096;
/// The driver's device, below the root.
const DEVICE: &str = "dev/nvidia-uvm";
/// The device on which trackers are made.
const TOOLS: &str = "dev/nvidia-uvm-tools";
/// Bytes of a message between the dashboard and its helper.
const MESSAGE: usize = 512;

/// What the driver counted for a process since the watch over it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes moved from the CPU to GPUs, without pages that were first touched on a GPU.
    pub to_gpu: u64,
    /// Bytes moved from GPUs to the CPU.
    pub to_cpu: u64,
    /// Page faults of the CPU.
    pub cpu_faults: u64,
    /// Page faults of GPUs, one for each entry of their fault buffers.
    pub gpu_faults: u64,
}

/// Reads processes' managed memory from `/proc`.
#[derive(Debug, Default)]
pub struct ManagedMemory {
    reader: residency::Reader,
    driver: Root,
}

impl ManagedMemory {
    /// Makes a reader with the driver's device below `driver`.
    pub fn new(driver: Root) -> ManagedMemory {
        ManagedMemory {
            driver,
            ..ManagedMemory::default()
        }
    }

    /// Reads a process's managed ranges from its memory map.
    ///
    /// # Errors
    /// If its map cannot be read: it is another user's, or has ended.
    pub fn map(&self, pid: u32) -> io::Result<ManagedMap> {
        let device = self.driver.path(DEVICE);
        ranges::managed_ranges(&Root::default(), pid, &device.to_string_lossy())
    }

    /// Returns which pages of these ranges of a process the CPU can reach. Takes 2 ms for each GiB.
    ///
    /// # Errors
    /// When its page table cannot be read.
    pub fn residency(&mut self, pid: u32, ranges: &[ManagedRange]) -> io::Result<Vec<Resident>> {
        let pagemap = Root::default().open(format!("proc/{pid}/pagemap"))?;
        self.reader.read(&pagemap, ranges)
    }
}
