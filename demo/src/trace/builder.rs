//! Makes a trace of operations on blocks with names.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::error::Problem;
use super::lines::Row;
use super::{Format, Op, Trace};

/// Most operations of a trace: 1.6 GB of memory, and a hundred times what the longest recorded one has.
const MOST_OPERATIONS: usize = 100_000_000;
/// The slot of a block of 0 bytes: it has none.
const NOWHERE: u32 = u32::MAX;

/// Spreads block names. They are a program's own numbers or addresses; who crafts collisions slows down only itself.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, n: u64) {
        let wide = u128::from(self.0 ^ n) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }
}

/// A trace in the making.
#[derive(Default)]
pub(super) struct Builder {
    ops: Vec<Op>,
    /// Live blocks by name: slot and bytes.
    live: HashMap<u64, (u32, u64), BuildHasherDefault<Spread>>,
    streams: Vec<u64>,
    stream_index: HashMap<u64, u16, BuildHasherDefault<Spread>>,
    free_slots: Vec<u32>,
    slots: u32,
    requested: u64,
    peak_requested: u64,
    zero_sized: u64,
    recorded_failures: u64,
    assumed: u64,
}

/// What is wrong with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    LiveAlready,
    NotLive,
    Overflow,
    TooManyStreams,
    TooManyOperations,
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
            Wrong::TooManyStreams => format!("more than {} streams; expected one of them", u16::MAX),
            Wrong::TooManyOperations => {
                format!("more than {MOST_OPERATIONS} operations; expected the end of the file")
            }
        }
    }

    /// The problem, at the column of the block's name, of its size or of its stream.
    pub(super) fn at(self, row: &Row<'_>, [name_at, bytes_at, stream_at]: [usize; 3], name: &str) -> Problem {
        let column = match self {
            Wrong::LiveAlready | Wrong::NotLive => name_at,
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
        let Entry::Vacant(entry) = self.live.entry(id) else {
            return Err(Wrong::LiveAlready);
        };
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
        let index = u16::try_from(self.streams.len()).map_err(|_| Wrong::TooManyStreams)?;
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
            other_devices: 0,
        }
    }
}
