//! Why a request did not fit, and what would have helped.

use std::fmt;

use gpumem_channel::pool_called;
use gpumem_text::units::{bytes_at_least_to_pib, bytes_to_pib};

use crate::stream::Stream;

/// Something that would have made a failed request succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Help {
    /// Giving the cache back to the driver frees at least this many bytes, enough for the request: the cache of the pool that it was for
    /// ([`Pool::release_cached`](crate::Pool::release_cached)), or where it was for none the allocator's
    /// ([`Allocator::release_cached`](crate::Allocator::release_cached)). What waits for the GPU is not counted, and may go back with it.
    ReleaseCache {
        /// Bytes that come free.
        bytes: u64,
    },
    /// The request was for a pool, and giving the allocator's whole cache back to the driver
    /// ([`Allocator::release_cached`](crate::Allocator::release_cached)) frees at least this many bytes, enough for it: of that pool, of
    /// others, and of what is no pool's. What waits for the GPU is not counted here either.
    ReleasePools {
        /// Bytes that come free.
        bytes: u64,
    },
    /// Memory can go back only once no graph is captured any more: then giving the cache back is enough for the request.
    EndCapture,
    /// Memory that the program gave back is enough for the request once the GPU is done with what is queued. Requests wait for that by themselves,
    /// but not while a graph is captured, or with [`release_on_oom`](crate::Config::release_on_oom) off; [`settle`](crate::Allocator::settle)
    /// does.
    Wait {
        /// Whether a graph is captured, which has to end first.
        capturing: bool,
    },
    /// A budget of the pool that is larger by this many bytes: there is room outside.
    RaisePoolBudget {
        /// Bytes more.
        bytes: u64,
    },
    /// A budget of the allocator that is larger by this many bytes: the device has room.
    RaiseBudget {
        /// Bytes more.
        bytes: u64,
    },
    /// Larger budgets of both: there is room on the device.
    RaiseBudgets {
        /// Bytes more for the pool.
        pool: u64,
        /// Bytes more for the allocator.
        all: u64,
    },
    /// Joining holes makes this many bytes contiguous, enough for the request.
    JoinHoles {
        /// Bytes that can be joined.
        bytes: u64,
    },
    /// A request smaller by this many bytes would have fitted.
    SmallerBy {
        /// Bytes too many.
        bytes: u64,
    },
    /// There is no room left: free something, raise the budget, or use a larger device.
    Exhausted,
}

impl Help {
    /// Its place in a report, the best first.
    fn rank(&self) -> u8 {
        match self {
            Help::ReleaseCache { .. } => 0,
            Help::ReleasePools { .. } => 1,
            Help::EndCapture => 2,
            Help::Wait { .. } => 3,
            Help::RaisePoolBudget { .. } => 4,
            Help::JoinHoles { .. } => 5,
            Help::RaiseBudget { .. } => 6,
            Help::RaiseBudgets { .. } => 7,
            Help::SmallerBy { .. } => 8,
            Help::Exhausted => 9,
        }
    }

    /// The same for the channel: words, and the bytes that complete them, no less of which is enough (0: they say all). `None` where nothing
    /// helps.
    pub(crate) fn told(&self) -> Option<(&'static str, u64)> {
        Some(match *self {
            Help::ReleaseCache { .. } => ("release the cache", 0),
            Help::ReleasePools { .. } => ("release the allocator's whole cache", 0),
            Help::EndCapture => ("release the cache after the graph's capture has ended", 0),
            Help::Wait { capturing: false } => ("wait for the GPU", 0),
            Help::Wait { capturing: true } => ("wait for the GPU after the graph's capture has ended", 0),
            Help::RaisePoolBudget { bytes } => ("raise the pool's budget by", bytes),
            Help::RaiseBudget { bytes } => ("raise the budget by", bytes),
            // One figure is enough for both.
            Help::RaiseBudgets { pool, all } => ("raise the pool's budget and the allocator's by", pool.max(all)),
            Help::JoinHoles { .. } => ("join holes", 0),
            Help::SmallerBy { bytes } => ("a request smaller by", bytes),
            Help::Exhausted => return None,
        })
    }
}

impl fmt::Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Help::ReleaseCache { bytes } => write!(f, "release cache ({})", bytes_to_pib(*bytes)),
            Help::ReleasePools { bytes } => write!(f, "release the allocator's whole cache ({})", bytes_to_pib(*bytes)),
            Help::EndCapture => f.write_str("release cache after the graph's capture has ended"),
            Help::Wait { capturing: false } => f.write_str("wait for the GPU"),
            Help::Wait { capturing: true } => f.write_str("wait for the GPU after the graph's capture has ended"),
            Help::RaisePoolBudget { bytes } => {
                write!(
                    f,
                    "raise the pool's budget by {}",
                    bytes_at_least_to_pib(*bytes, u64::MAX)
                )
            }
            Help::RaiseBudget { bytes } => write!(f, "raise the budget by {}", bytes_at_least_to_pib(*bytes, u64::MAX)),
            Help::RaiseBudgets { pool, all } => {
                let [pool, all] = [pool, all].map(|bytes| bytes_at_least_to_pib(*bytes, u64::MAX));
                write!(f, "raise the pool's budget by {pool} and the allocator's by {all}")
            }
            Help::JoinHoles { bytes } => write!(f, "join holes ({} in whole chunks)", bytes_to_pib(*bytes)),
            Help::SmallerBy { bytes } => f.write_str(&smaller(*bytes, u64::MAX)),
            Help::Exhausted => write!(f, "nothing: exhausted"),
        }
    }
}

/// The pool that a request was for that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolShortage {
    /// Its name.
    pub name: String,
    /// Its budget, if it has one.
    pub budget: Option<u64>,
    /// Taken from the driver for it.
    pub reserved: u64,
    /// Held by the program in it.
    pub allocated: u64,
}

/// The state of the device and the allocator when a request failed. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OomReport {
    /// What was asked for.
    pub requested: u64,
    /// The same after rounding: the size of block that was looked for.
    pub rounded: u64,
    /// The stream it was for.
    pub stream: Stream,
    /// The pool it was for, if it was one.
    pub pool: Option<PoolShortage>,
    /// Free on the device, whoever uses the rest; `None` when the driver did not say.
    pub device_free: Option<u64>,
    /// The device's total.
    pub device_total: u64,
    /// The largest free block the request could have used, were it large enough: of its pool, and of everybody's memory if it may overflow,
    /// but none that another stream may still use.
    pub largest_free: u64,
    /// Sum of all free blocks.
    pub total_free: u64,
    /// Freed by the program, but still in use by queued GPU work.
    pub pending: u64,
    /// Taken from the driver.
    pub reserved: u64,
    /// Held by the program.
    pub allocated: u64,
    /// The allocator's budget, if it has one.
    pub budget: Option<u64>,
    /// What would have helped, best first; never empty.
    pub helps: Vec<Help>,
}

impl OomReport {
    /// Adds what would have helped the same request outside of its pool, where it may go too.
    pub(crate) fn also(&mut self, outside: OomReport) {
        self.largest_free = self.largest_free.max(outside.largest_free);
        for help in outside.helps {
            let help = match help {
                // The cache of the pool is another one.
                Help::ReleaseCache { bytes } => Help::ReleasePools { bytes },
                help => help,
            };
            let known = self.helps.iter_mut().find(|known| known.rank() == help.rank());
            match (known, help) {
                (Some(Help::SmallerBy { bytes }), Help::SmallerBy { bytes: less }) => *bytes = less.min(*bytes),
                (Some(_), _) => {}
                (None, help) => self.helps.push(help),
            }
        }
        self.helps.sort_by_key(Help::rank);
        if self.helps.len() > 1 {
            self.helps.retain(|help| *help != Help::Exhausted);
        }
    }
}

/// By how much a request is to be smaller, told as at most `over` more.
fn smaller(bytes: u64, over: u64) -> String {
    format!("a request smaller by {}", bytes_at_least_to_pib(bytes, over))
}

/// A budget, and what of it is not reserved: of two large numbers that look the same nobody sees what is between them.
fn shown(budget: u64, reserved: u64) -> String {
    let left = budget.saturating_sub(reserved);
    format!("budget {} ({} left)", bytes_to_pib(budget), bytes_to_pib(left))
}

impl fmt::Display for OomReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of GPU memory: {} requested", bytes_to_pib(self.requested))?;
        if let Some(pool) = &self.pool {
            write!(f, " in {} (", pool_called(&pool.name))?;
            if let Some(budget) = pool.budget {
                write!(f, "{}, ", shown(budget, pool.reserved))?;
            }
            let (reserved, allocated) = (bytes_to_pib(pool.reserved), bytes_to_pib(pool.allocated));
            write!(f, "reserved {reserved}, allocated {allocated})")?;
        }
        write!(f, "; ")?;
        match self.device_free {
            Some(free) => write!(
                f,
                "device {} of {} free",
                bytes_to_pib(free),
                bytes_to_pib(self.device_total)
            )?,
            None => write!(f, "device of {}, free memory unknown", bytes_to_pib(self.device_total))?,
        }
        if let Some(budget) = self.budget {
            write!(f, ", {}", shown(budget, self.reserved))?;
        }
        write!(
            f,
            "; reserved {}, allocated {}",
            bytes_to_pib(self.reserved),
            bytes_to_pib(self.allocated)
        )?;
        write!(f, "; {} free in cache, ", bytes_to_pib(self.total_free))?;
        // What is another pool's, or kept for small or large requests: a largest block of 0 B would contradict what is free.
        match self.largest_free {
            0 if self.total_free > 0 => f.write_str("none of it for such a request")?,
            largest => write!(f, "largest free block {}", bytes_to_pib(largest))?,
        }
        if self.pending > 0 {
            write!(f, ", {} waiting for the GPU", bytes_to_pib(self.pending))?;
        }
        write!(f, "; what would have helped: ")?;
        for (i, help) in self.helps.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", or " })?;
            match help {
                // A large size that is rounded up may be all that was asked for.
                Help::SmallerBy { bytes } => {
                    f.write_str(&smaller(*bytes, self.requested.saturating_sub(*bytes) / 2))?
                }
                help => write!(f, "{help}")?,
            }
        }
        Ok(())
    }
}
