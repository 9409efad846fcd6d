//! What a monitor sees and says.

use std::fmt;
use std::time::Duration;

use gpumem_text::units::bytes_to_pib;

use crate::free::FreeBlocks;
use crate::heap::{CompactReport, Heap};

/// A ratio from 0 to 1 that a monitor looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// External fragmentation: 1 - largest free block / all free. Where there are pools, no request is served from two of them: 1 - the
    /// largest free block of each pool and of what is no pool's, together / all free. Free memory of private pools does not count, as nothing
    /// can be done about it while they live.
    #[default]
    External,
    /// The part of what is reserved that is free: 1 - active / reserved.
    Cached,
}

/// What was done about it; it need not have been enough.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Done {
    /// Nothing but saying so.
    Warned,
    /// The cache was given back: bytes.
    Released(u64),
    /// The cache was made compact.
    Compacted(CompactReport),
    /// It was tried, and failed.
    Failed(String),
}

impl Done {
    pub(super) fn changed_something(&self) -> bool {
        match self {
            Done::Warned | Done::Failed(_) => false,
            Done::Released(bytes) => *bytes > 0,
            Done::Compacted(report) => report.released + report.bytes_moved > 0,
        }
    }
}

/// Too much fragmentation for too long. Sizes in bytes, before anything was done.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Alert {
    /// The device's number in this process.
    pub device: u32,
    /// What was measured.
    pub measure: Measure,
    /// How much it is.
    pub ratio: f64,
    /// For how long it has been too much.
    pub lasted: Duration,
    /// Taken from the driver.
    pub reserved: u64,
    /// Held by the program.
    pub allocated: u64,
    /// The free blocks; those of private pools are not among them where their fragmentation was measured.
    pub free: FreeBlocks,
    /// The largest of them, or where fragmentation was measured that of each pool and of what is no pool's, together.
    pub largest_of_each: u64,
    /// What was done about it.
    pub done: Done,
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.measure {
            Measure::External => "external fragmentation of",
            Measure::Cached => "unused memory:",
        };
        let seconds = self.lasted.as_secs_f64();
        let decimals = usize::from(seconds < 1.0);
        write!(
            f,
            "device {}: {what} {:.0} % for {seconds:.decimals$} s: {} free in {} blocks, the largest {}",
            self.device,
            self.ratio * 100.0,
            bytes_to_pib(self.free.total),
            self.free.count,
            bytes_to_pib(self.free.largest),
        )?;
        if self.largest_of_each > self.free.largest {
            write!(
                f,
                ", those of all pools {} together",
                bytes_to_pib(self.largest_of_each)
            )?;
        }
        let [reserved, allocated] = [self.reserved, self.allocated].map(bytes_to_pib);
        write!(f, "; reserved {reserved}, allocated {allocated}; ")?;
        match &self.done {
            Done::Warned => f.write_str("releasing the cache or making it compact may help"),
            Done::Released(bytes) => write!(f, "released {}", bytes_to_pib(*bytes)),
            Done::Compacted(report) => write!(
                f,
                "released {}, moved {}: the largest free block is {} now",
                bytes_to_pib(report.released),
                bytes_to_pib(report.bytes_moved),
                bytes_to_pib(report.after.largest)
            ),
            Done::Failed(why) => write!(f, "tidying up failed: {why}"),
        }
    }
}

/// An allocator at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) reserved: u64,
    pub(super) allocated: u64,
    pub(super) free: FreeBlocks,
    pub(super) largest_of_each: u64,
}

impl Reading {
    /// What is there; `exact`: after the blocks that are set aside joined their neighbours. Without it there may be larger ones.
    pub(super) fn of(heap: &mut Heap, measure: Measure, exact: bool) -> Reading {
        if exact {
            heap.drain_all();
        }
        let (free, largest_of_each) = match measure {
            Measure::External => {
                let fragments = heap.fragments();
                (fragments.free, fragments.largest)
            }
            Measure::Cached => {
                let free = heap.count_free();
                (free, free.largest)
            }
        };
        let all = heap.stats().all();
        Reading {
            reserved: all.reserved_bytes.current,
            allocated: all.allocated_bytes.current,
            free,
            largest_of_each,
        }
    }
}
