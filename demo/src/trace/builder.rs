//! Builds a trace from operations on blocks with ids.

use std::collections::{HashMap, TryReserveError};

use gpumem_text::units::count;

use super::before::Before;
use super::error::Problem;
use super::lines::Row;
use super::odd::Odd;
use super::spread::Key;
use super::{Format, Op, Trace};

/// The most operations of a trace: 1.6 GB of memory, and a hundred times as many as the longest recorded trace has.
pub(super) const MOST_OPERATIONS: usize = 100_000_000;
/// The most blocks that live at once. They take half a gigabyte including the allocator's records; recorded programs have
/// thousands.
const MOST_LIVE: usize = 4 << 20;
/// The most streams. Our allocator tracks as many, and a replay with more would fail.
const MOST_STREAMS: usize = 4096;
/// Stands for the slot of a block of 0 bytes, which has none.
const NOWHERE: u32 = u32::MAX;

/// A trace that is being built.
#[derive(Default)]
pub(super) struct Builder {
    ops: Vec<Op>,
    /// Live blocks by id: slot and bytes.
    live: HashMap<u64, (u32, u64), Key>,
    streams: Vec<u64>,
    stream_index: HashMap<u64, u16, Key>,
    /// Operations that will be put before those of the newest log. `ops` has reserved space for them.
    before: Before,
    /// The index in `ops` at which the newest log begins.
    begin: usize,
    /// The number of frees, by address, that are expected after the next allocation at that address.
    late: HashMap<u64, u32, Key>,
    free_slots: Vec<u32>,
    slots: u32,
    requested: u64,
    /// The peak of the newest log.
    peak_requested: u64,
    /// The peak of the logs before it.
    peak_of_others: u64,
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
    FreeSize { freed: u64, allocated: u64 },
    Overflow,
    TooManyStreams,
    TooManyOperations,
    TooManyLive,
    NoMemory,
}

impl From<TryReserveError> for Wrong {
    fn from(_: TryReserveError) -> Wrong {
        Wrong::NoMemory
    }
}

impl Wrong {
    /// Describes the problem; `name` is that of the block.
    pub(super) fn what(self, name: &str) -> String {
        match self {
            Wrong::LiveAlready => format!("{name} is live already; expected one that is not, or its free first"),
            Wrong::NotLive => {
                format!("{name} is not live (never allocated, or freed before); expected one that is")
            }
            Wrong::FreeSize { freed, allocated } => {
                format!("frees {freed} bytes of {name}, where {allocated} were allocated; expected these")
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
            Wrong::NoMemory => "there is no memory for more operations".to_owned(),
        }
    }

    /// Returns the problem at the column of the block's name, size or stream.
    pub(super) fn at(self, row: &Row<'_>, [name_at, bytes_at, stream_at]: [usize; 3], name: &str) -> Problem {
        let limit = |column| Problem::Limit {
            line: row.line(),
            column,
            what: self.what(name),
        };
        match self {
            Wrong::LiveAlready | Wrong::NotLive => row.at(name_at, self.what(name)),
            Wrong::Overflow | Wrong::FreeSize { .. } => row.at(bytes_at, self.what(name)),
            Wrong::TooManyLive => limit(name_at),
            Wrong::TooManyStreams => limit(stream_at),
            Wrong::TooManyOperations => limit(1),
            // Neither a field nor a damaged file is the cause.
            Wrong::NoMemory => Problem::NoMemory { line: row.line() },
        }
    }
}

impl Builder {
    pub(super) fn alloc(&mut self, id: u64, bytes: u64, stream: u64) -> Result<(), Wrong> {
        use std::collections::hash_map::Entry;
        let stream = self.stream(stream)?;
        let full = self.live.len() == MOST_LIVE;
        self.live.try_reserve(1)?;
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
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None => new_slot(&mut self.slots, &mut self.free_slots)?,
        };
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

    /// Adds an allocation at an address that may be live. Its free is then late or missing.
    pub(super) fn alloc_again(&mut self, id: u64, bytes: u64, stream: u64) -> Result<(), Wrong> {
        if self.live.contains_key(&id) {
            if self.late.len() >= MOST_LIVE {
                return Err(Wrong::LiveAlready);
            }
            self.late.try_reserve(1)?;
            self.before.freed(id)?;
            self.free(id)?;
            *self.late.entry(id).or_insert(0) += 1;
            self.assumed += 1;
        }
        self.alloc(id, bytes, stream)
    }

    /// Adds a free with its stream and size. A size of 0 is unknown; blocks of 0 bytes are not kept.
    ///
    /// The block is freed even if the size differs from the allocated one; the difference is then returned.
    pub(super) fn free_sized(&mut self, id: u64, bytes: u64, stream: u64) -> Result<Option<Wrong>, Wrong> {
        let live = self.live.get(&id).map(|(_, bytes)| *bytes);
        let odd = match live {
            Some(_) if self.take_late(id) => return Ok(None),
            Some(allocated) if bytes != 0 && allocated != bytes => Some(Wrong::FreeSize {
                freed: bytes,
                allocated,
            }),
            Some(_) => None,
            None if bytes == 0 => {
                self.other();
                return Ok(None);
            }
            None if self.before.may_have(id) => {
                self.assume(id, bytes, stream)?;
                None
            }
            None => return Err(Wrong::NotLive),
        };
        self.before.freed(id)?;
        self.free(id)?;
        Ok(odd)
    }

    /// Checks whether this free was assumed before, and if so takes it from the assumed ones.
    fn take_late(&mut self, id: u64) -> bool {
        if self.late.is_empty() {
            return false;
        }
        let Some(late) = self.late.get_mut(&id) else {
            return false;
        };
        *late -= 1;
        if *late == 0 {
            self.late.remove(&id);
        }
        self.assumed -= 1;
        true
    }

    /// Begins another log. Blocks still live at the end of the previous one end with its program, and addresses mean new blocks.
    pub(super) fn next_log(&mut self) -> Result<(), Wrong> {
        let mut left = Vec::new();
        left.try_reserve_exact(self.live.len())?;
        left.extend(self.live.drain().map(|(id, (slot, _))| (id, slot)));
        left.sort_unstable();
        for (_, slot) in left {
            if slot != NOWHERE {
                self.free_slots.push(slot);
                self.push(Op::Free { slot })?;
                self.assumed += 1;
            }
        }
        self.settle();
        self.begin = self.ops.len();
        self.late.clear();
        self.requested = 0;
        self.peak_of_others = self.peak_of_others.max(self.peak_requested);
        self.peak_requested = 0;
        Ok(())
    }

    /// Moves the allocations from before the newest log to its begin.
    fn settle(&mut self) {
        let before = std::mem::take(&mut self.before);
        let count = before.len();
        self.ops.extend(before.allocs());
        self.ops[self.begin..].rotate_right(count);
    }

    /// Adds a block that must have been live since before the log.
    fn assume(&mut self, id: u64, bytes: u64, stream: u64) -> Result<(), Wrong> {
        let stream = self.stream(stream)?;
        if self.slots as usize == MOST_LIVE {
            return Err(Wrong::TooManyLive);
        }
        // It was live together with all other blocks of its log, at their peak, too, so sum and slots stay exact.
        self.peak_requested = self.peak_requested.checked_add(bytes).ok_or(Wrong::Overflow)?;
        self.requested += bytes;
        let slot = new_slot(&mut self.slots, &mut self.free_slots)?;
        self.before.push(id, Op::Alloc { slot, stream, bytes })?;
        self.assumed += 1;
        self.live.try_reserve(1)?;
        self.live.insert(id, (slot, bytes));
        Ok(())
    }

    /// Counts a request of 0 bytes whose block is not kept.
    pub(super) fn zero_sized(&mut self) {
        self.zero_sized += 1;
    }

    /// Counts a request that failed when it was recorded.
    pub(super) fn recorded_failure(&mut self) {
        self.recorded_failures += 1;
    }

    /// Counts an entry that neither requests nor frees memory.
    pub(super) fn other(&mut self) {
        self.others += 1;
    }

    /// Counts an operation that is missing from the recording.
    pub(super) fn assumed(&mut self) {
        self.assumed += 1;
    }

    fn push(&mut self, op: Op) -> Result<(), Wrong> {
        let all = self.before.len() + self.ops.len();
        if all >= MOST_OPERATIONS {
            return Err(Wrong::TooManyOperations);
        }
        if all >= self.ops.capacity() {
            // The capacity doubles up to the limit.
            let wanted = (2 * all).clamp(1 << 10, MOST_OPERATIONS);
            self.ops.try_reserve_exact(wanted - self.ops.len())?;
        }
        self.ops.push(op);
        Ok(())
    }

    fn stream(&mut self, number: u64) -> Result<u16, Wrong> {
        // Most programs have one stream or stay on one for a while.
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
        self.settle();
        self.ops.shrink_to_fit();
        Trace {
            format,
            compressed: false,
            ops: self.ops,
            streams: self.streams,
            slots: self.slots as usize,
            peak_requested: self.peak_requested.max(self.peak_of_others),
            live_blocks: self.live.values().filter(|(slot, _)| *slot != NOWHERE).count() as u64,
            live_bytes: self.requested,
            zero_sized: self.zero_sized,
            recorded_failures: self.recorded_failures,
            assumed: self.assumed,
            others: self.others,
            unknown_actions: 0,
            unknown_names: Vec::new(),
            other_devices: 0,
            odd: Odd::default(),
        }
    }
}

/// Returns a slot that no block had before.
fn new_slot(slots: &mut u32, free_slots: &mut Vec<u32>) -> Result<u32, Wrong> {
    *slots += 1;
    // Room for all slots is reserved now, so that freeing a block never needs memory.
    free_slots.try_reserve(*slots as usize - free_slots.len())?;
    Ok(*slots - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_live_blocks_is_limited() {
        // Blocks of 0 bytes count, too.
        let mut builder = Builder {
            live: (0..MOST_LIVE as u64).map(|id| (id, (NOWHERE, 0))).collect(),
            ..Builder::default()
        };
        assert_eq!(builder.alloc(u64::MAX, 1, 0), Err(Wrong::TooManyLive));
        assert_eq!(builder.alloc(0, 1, 0), Err(Wrong::LiveAlready));
        assert_eq!(builder.free(0), Ok(()));
        assert_eq!(builder.alloc(u64::MAX, 1, 0), Ok(()));
    }
}
