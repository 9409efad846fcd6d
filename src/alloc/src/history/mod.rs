//! History: what happened, who did it, and who holds the memory.
//!
//! While it is on, every event of the heap is kept in a ring, with its time, thread and call stack, and every held block is
//! counted for its owner: the call stack that asked for it and the tag of that moment. From this follow the owners at the
//! [peak](PeakReport), the [leaks](LeakReport), and [snapshots](crate::Allocator::snapshot) with traces.

use crate::error::Error;

mod entry;
mod lists;
mod numbers;
mod owners;
mod recorder;
mod report;

pub(crate) use entry::{Deed, Entry};
pub(crate) use lists::Pieces;
pub(crate) use recorder::Recorder;
pub use report::{HistoryFigures, Leak, LeakReport, Owner, PeakReport};

/// Whether an allocator records what happens; see [`Allocator::record_history`](crate::Allocator::record_history).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum History {
    /// It does not. The cost is part of a branch that is there anyway.
    #[default]
    Off,
    /// It does. Every request then goes through the heap, past the lanes of the streams: blocks may lie elsewhere than without a history.
    On {
        /// Events kept, 67,108,864 at most; older ones are dropped, and counted. An event takes 64 bytes. 0 keeps none: peak and leaks need
        /// none.
        ///
        /// Of stitched blocks the pieces are kept, too: 120 bytes or so for a list, and 16 for each piece in it. Events of the same
        /// pieces share a list, and it goes with the last of these: there is never more than one for each event, and for each block
        /// that is held or waits for queued work.
        max_events: usize,
        /// For what call stacks are taken.
        stacks: Stacks,
    },
}

impl History {
    /// On, with 200,000 events (17 MB at most, beside the pieces of stitched blocks) and the call stacks of allocations.
    pub const ON: History = History::On {
        max_events: 200_000,
        stacks: Stacks::Alloc,
    };
    /// Most events that may be asked for: 4 GB of them.
    pub(crate) const MOST_EVENTS: usize = 1 << 26;

    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            History::On { max_events, .. } if max_events > History::MOST_EVENTS => Err(Error::Config {
                setting: "max_events",
                reason: format!("{max_events} events: at most {} can be kept", History::MOST_EVENTS),
            }),
            _ => Ok(()),
        }
    }
}

/// For what call stacks are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stacks {
    /// For nothing: owners are told apart by tag only.
    None,
    /// For allocations, and for what is done to memory from the driver.
    #[default]
    Alloc,
    /// For frees too.
    All,
}
