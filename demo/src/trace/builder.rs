//! Makes a trace of operations on blocks with names.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use super::error::Problem;
use super::lines::Row;
use super::{Format, Op, Trace};
use crate::bytes::count;

/// Most operations of a trace: 1.6 GB of memory, and a hundred times what the longest recorded one has.
pub(super) const MOST_OPERATIONS: usize = 100_000_000;
/// Most blocks that live at once, which take half a gigabyte with what the allocator knows of them. Recorded programs have thousands.
const MOST_LIVE: usize = 4 << 20;
/// Most streams: as many as our allocator keeps apart, which would end the replay at the next.
const MOST_STREAMS: usize = 4096;
/// The slot of a block of 0 bytes: it has none.
const NOWHERE: u32 = u32::MAX;

/// Spreads block names, with a multiplier that no file can know: names may be crafted, and those that collide for one multiplier are
/// found with pencil and paper. The standard hasher, which is safe too, takes longer than the rest of reading a line.
struct Spread {
    spread: u64,
    times: u64,
}

/// Makes the hashers of one map.
struct Key {
    start: u64,
    times: u64,
}

impl Default for Key {
    fn default() -> Key {
        let random = RandomState::new();
        Key {
            start: random.hash_one(0),
            // Even ones would lose bits.
            times: random.hash_one(1) | 1,
        }
    }
}

impl BuildHasher for Key {
    type Hasher = Spread;

    fn build_hasher(&self) -> Spread {
        Spread {
            spread: self.start,
            times: self.times,
        }
    }
}

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.spread
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, n: u64) {
        let wide = u128::from(self.spread ^ n) * u128::from(self.times);
        self.spread = (wide >> 64) as u64 ^ wide as u64;
    }
}

/// A trace in the making.
#[derive(Default)]
pub(super) struct Builder {
    ops: Vec<Op>,
    /// Live blocks by name: slot and bytes.
    live: HashMap<u64, (u32, u64), Key>,
    streams: Vec<u64>,
    stream_index: HashMap<u64, u16, Key>,
    free_slots: Vec<u32>,
    slots: u32,
    requested: u64,
    peak_requested: u64,
    zero_sized: u64,
    recorded_failures: u64,
    assumed: u64,
    others: u64,
}

/// What is wrong with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    LiveAlready,
    NotLive,
    Overflow,
    TooManyStreams,
    TooManyOperations,
    TooManyLive,
}

impl Wrong {
    /// In words; `name` is that of the block.
    pub(super) fn what(self, name: &str) -> String {
        match self {
            Wrong::LiveAlready => format!("{name} is live already; expected one that is not, or its free first"),
            Wrong::NotLive => {
                format!("{name} is not live (never allocated, or freed before); expected one that is")
            }
            Wrong::Overflow => {
                "the sum of all live blocks does not fit into 64 bits; expected a smaller size".to_owned()
            }
            Wrong::TooManyStreams => format!("more than {MOST_STREAMS} streams; expected one of them"),
            Wrong::TooManyOperations => {
                format!(
                    "more than {} operations; expected the end of the file",
                    count(MOST_OPERATIONS as u64)
                )
            }
            Wrong::TooManyLive => {
                format!("more than {MOST_LIVE} blocks that live at once; expected one of them to be freed")
            }
        }
    }

    /// The problem, at the column of the block's name, of its size or of its stream.
    pub(super) fn at(self, row: &Row<'_>, [name_at, bytes_at, stream_at]: [usize; 3], name: &str) -> Problem {
        let column = match self {
            Wrong::LiveAlready | Wrong::NotLive | Wrong::TooManyLive => name_at,
            Wrong::Overflow => bytes_at,
            Wrong::TooManyStreams => stream_at,
            Wrong::TooManyOperations => 1,
        };
        row.at(column, self.what(name))
    }
}

impl Builder {
    pub(super) fn alloc(&mut self, id: u64, bytes: u64, stream: u64) -> Result<(), Wrong> {
        use std::collections::hash_map::Entry;
        let stream = self.stream(stream)?;
        let full = self.live.len() == MOST_LIVE;
        let Entry::Vacant(entry) = self.live.entry(id) else {
            return Err(Wrong::LiveAlready);
        };
        if full {
            return Err(Wrong::TooManyLive);
        }
        if bytes == 0 {
            entry.insert((NOWHERE, 0));
            self.zero_sized += 1;
            return Ok(());
        }
        self.requested = self.requested.checked_add(bytes).ok_or(Wrong::Overflow)?;
        self.peak_requested = self.peak_requested.max(self.requested);
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        entry.insert((slot, bytes));
        self.push(Op::Alloc { slot, stream, bytes })
    }

    pub(super) fn free(&mut self, id: u64) -> Result<(), Wrong> {
        let (slot, bytes) = self.live.remove(&id).ok_or(Wrong::NotLive)?;
        if slot == NOWHERE {
            return Ok(());
        }
        self.requested -= bytes;
        self.free_slots.push(slot);
        self.push(Op::Free { slot })
    }

    /// Counts a request of 0 bytes whose block is not kept.
    pub(super) fn zero_sized(&mut self) {
        self.zero_sized += 1;
    }

    /// Counts a request that had failed.
    pub(super) fn recorded_failure(&mut self) {
        self.recorded_failures += 1;
    }

    /// Counts what neither asks for memory nor frees a block.
    pub(super) fn other(&mut self) {
        self.others += 1;
    }

    /// Counts an operation that the recording lacks.
    pub(super) fn assumed(&mut self) {
        self.assumed += 1;
    }

    fn push(&mut self, op: Op) -> Result<(), Wrong> {
        if self.ops.len() == MOST_OPERATIONS {
            return Err(Wrong::TooManyOperations);
        }
        self.ops.push(op);
        Ok(())
    }

    fn stream(&mut self, number: u64) -> Result<u16, Wrong> {
        // Most programs stay on a stream for a while, or have one.
        if let Some(index) = self.stream_index.get(&number) {
            return Ok(*index);
        }
        if self.streams.len() == MOST_STREAMS {
            return Err(Wrong::TooManyStreams);
        }
        let index = self.streams.len() as u16;
        self.streams.push(number);
        self.stream_index.insert(number, index);
        Ok(index)
    }

    pub(super) fn finish(mut self, format: Format) -> Trace {
        self.ops.shrink_to_fit();
        Trace {
            format,
            compressed: false,
            ops: self.ops,
            streams: self.streams,
            slots: self.slots as usize,
            peak_requested: self.peak_requested,
            live_blocks: self.live.values().filter(|(slot, _)| *slot != NOWHERE).count() as u64,
            live_bytes: self.requested,
            zero_sized: self.zero_sized,
            recorded_failures: self.recorded_failures,
            assumed: self.assumed,
            others: self.others,
            unknown_actions: 0,
            unknown_names: Vec::new(),
            other_devices: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn so_many_blocks_live_at_once_and_no_more() {
        // Those of 0 bytes are kept, too.
        let mut builder = Builder {
            live: (0..MOST_LIVE as u64).map(|id| (id, (NOWHERE, 0))).collect(),
            ..Builder::default()
        };
        assert_eq!(builder.alloc(u64::MAX, 1, 0), Err(Wrong::TooManyLive));
        assert_eq!(builder.alloc(0, 1, 0), Err(Wrong::LiveAlready));
        assert_eq!(builder.free(0), Ok(()));
        assert_eq!(builder.alloc(u64::MAX, 1, 0), Ok(()));
    }

    /// Names that have the same lower bits with a multiplier that everybody knows, the golden ratio's.
    #[test]
    fn crafted_names_do_not_collide() {
        let known = |n: u64| {
            let wide = u128::from(n) * 0x9e37_79b9_7f4a_7c15;
            (wide >> 64) as u64 ^ wide as u64
        };
        let crafted = (0..1u64 << 20).filter(|n| known(*n) % 1024 == 0);
        let builder = Builder::default();
        let places: Vec<u64> = crafted.map(|n| builder.live.hasher().hash_one(n) % 1024).collect();
        let met: HashSet<u64> = places.iter().copied().collect();
        // By chance 63 of 100 places are met by as many names as there are places.
        assert!(places.len() > 900 && met.len() > 400, "{} {}", places.len(), met.len());
    }
}
