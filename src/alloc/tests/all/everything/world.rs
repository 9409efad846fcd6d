//! What the threads of a program share, and what they hold.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gpumem_alloc::device::Sim;
use gpumem_alloc::{Allocator, Buffer, Error, Pool, PoolConfig, Stream};

use crate::everything::program::Index;

/// What the program holds.
pub(crate) enum What {
    Buffer(Buffer<u8>),
    Raw(u64),
}

pub(crate) struct Held {
    pub(crate) what: What,
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    /// At least.
    pub(crate) size: u64,
    pub(crate) stream: Stream,
    /// Whether the stream is one that all threads use, which does not end.
    pub(crate) lasts: bool,
    /// How many streams of the thread's own had ended before.
    pub(crate) life: u64,
    pub(crate) stamp: u8,
}

/// What threads share.
pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) alloc: Allocator,
    pub(crate) faulty: bool,
    /// Addresses that somebody holds, with their sizes.
    pub(crate) ranges: Mutex<BTreeMap<u64, u64>>,
    pub(crate) sent: Mutex<Vec<Held>>,
    pub(crate) pools: Mutex<Vec<Open>>,
    /// The numbers of pools and stamps.
    pub(crate) made: AtomicU64,
    /// Routes that were begun: what was asked for elsewhere may come from a pool.
    pub(crate) routes: AtomicU64,
}

#[derive(Clone)]
pub(crate) struct Open {
    pub(crate) pool: Pool,
    pub(crate) config: PoolConfig,
    pub(crate) private: bool,
    /// What a graph may use.
    pub(crate) ever: Vec<(u64, u64)>,
}

/// Errors that may come: memory is short, a driver call was made to fail, or a graph is captured.
pub(crate) fn expected<T>(world: &World, result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Error::OutOfMemory(report)) => {
            assert!(!report.to_string().is_empty());
            None
        }
        Err(Error::Capturing) => None,
        Err(Error::Device(_)) if world.faulty => None,
        Err(error) => panic!("{error}"),
    }
}

impl World {
    pub(crate) fn pick(&self, index: &Index) -> Option<Open> {
        let pools = self.pools.lock().unwrap();
        (!pools.is_empty()).then(|| pools[index.index(pools.len())].clone())
    }

    pub(crate) fn take(&self, held: &Held, from: Option<&Open>) {
        if held.bytes == 0 {
            return assert_eq!(held.addr, 0);
        }
        let known = self.routes.load(Ordering::SeqCst) == 0;
        let its = from.map(|open| open.pool.id());
        for open in self.pools.lock().unwrap().iter_mut().filter(|open| open.private) {
            if Some(open.pool.id()) == its {
                open.ever.push((held.addr, held.size));
            } else if known {
                let apart = |(addr, size): &(u64, u64)| held.addr + held.size <= *addr || addr + size <= held.addr;
                assert!(open.ever.iter().all(apart), "a graph may use what was handed out");
            }
        }
        let mut ranges = self.ranges.lock().unwrap();
        let before = ranges.range(..held.addr + held.size).next_back();
        assert!(
            before.is_none_or(|(at, size)| at + size <= held.addr),
            "{:#x} is held by two",
            held.addr
        );
        ranges.insert(held.addr, held.size);
    }

    /// Before it is given back: afterwards somebody else may have it at once.
    pub(crate) fn give(&self, held: &Held) {
        if held.bytes > 0 {
            assert_eq!(self.ranges.lock().unwrap().remove(&held.addr), Some(held.size));
        }
    }

    /// Snapshot, peak and figures add up, whatever others do meanwhile.
    pub(crate) fn look(&self) {
        assert_eq!(self.alloc.snapshot().unwrap().check(), []);
        if let Some(peak) = self.alloc.peak() {
            assert_eq!(peak.owners.iter().map(|owner| owner.bytes).sum::<u64>(), peak.allocated);
        }
        let all = self.alloc.stats().all();
        for stat in [
            all.allocation,
            all.allocated_bytes,
            all.reserved_bytes,
            all.requested_bytes,
        ] {
            assert!(stat.current <= stat.peak && stat.peak <= stat.allocated);
        }
    }
}
