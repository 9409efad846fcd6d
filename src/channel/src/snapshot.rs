//! What a reader hands out: plain values, cheap to clone, safe to keep.

use std::sync::Arc;

use crate::record::{Block, BlockState, Device, Event, Segment, StringId};
use crate::stats::DeviceStats;

/// Who publishes. Every field is a claim of the publisher's, checked where that is possible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Process id in the publisher's own pid namespace: a label.
    pub pid: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22); tells a reused pid from the real one.
    pub start_time: u64,
    /// The kernel's boot id; a file of another boot is dead whatever its lock says.
    pub boot_id: [u8; 16],
    /// Inode of the publisher's pid namespace.
    pub pid_namespace: u64,
    /// The publisher's user, from the file's owner.
    pub uid: u32,
    /// When the channel was made: nanoseconds since 1970.
    pub created_realtime: u64,
    /// The same moment on `CLOCK_MONOTONIC`, to place the times of blocks and events.
    pub created_monotonic: u64,
    /// Program name.
    pub program: String,
    /// Job label; empty when not set.
    pub job: String,
    /// Rank in a distributed job (`RANK`).
    pub rank: Option<u32>,
    /// Rank on this machine (`LOCAL_RANK`).
    pub local_rank: Option<u32>,
    /// Number of ranks (`WORLD_SIZE`).
    pub world_size: Option<u32>,
}

/// Whether the publisher lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Life {
    /// The file's lock is held.
    #[default]
    Alive,
    /// The lock is free and the publisher said goodbye.
    Closed,
    /// The lock is free and it did not: killed, crashed, or powered off. The file is its black box.
    Died,
}

/// One segment with its blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SegmentMap {
    /// The slot it is published in; stable while it lives.
    pub slot: u32,
    /// The segment.
    pub segment: Segment,
    /// Its blocks by address. They tile the segment exactly when `complete`.
    pub blocks: Box<[Block]>,
    /// False when some of its blocks are untracked or could not be read consistently; what is shown is then the part that is known.
    pub complete: bool,
    /// Sums over the free ones among its blocks.
    pub free: FreeSums,
    /// Whether the sums have to be taken anew.
    recount: bool,
}

impl SegmentMap {
    /// A segment with these blocks.
    pub fn new(slot: u32, segment: Segment, blocks: Box<[Block]>, complete: bool) -> SegmentMap {
        SegmentMap {
            slot,
            segment,
            free: FreeSums::of(&blocks),
            blocks,
            complete,
            recount: false,
        }
    }

    /// Replaces block `at` by its next state, with the same place. [`SegmentMap::settle`] has to follow.
    #[inline]
    pub(crate) fn replace(&mut self, at: usize, block: &Block) {
        if at >= self.blocks.len() {
            return;
        }
        self.recount = self.recount || !self.free.count(&self.blocks, at, false);
        self.blocks[at] = *block;
        self.recount = self.recount || !self.free.count(&self.blocks, at, true);
    }

    /// Finds the largest free block again if it was taken.
    pub(crate) fn settle(&mut self) {
        match self.free {
            _ if std::mem::take(&mut self.recount) => self.free = FreeSums::of(&self.blocks),
            FreeSums { count: 0, .. } => self.free = FreeSums::default(),
            FreeSums { as_large: 0, .. } => self.free = FreeSums::of(&self.blocks),
            _ => {}
        }
    }
}

/// Blocks on each side that a replacement looks at to find out what joins what. Beyond that everything is counted anew.
const NEAR: usize = 64;

/// Sums over free blocks, as they are once what is set aside ([`BlockState::Quick`]) has joined its neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeSums {
    /// Bytes.
    pub bytes: u64,
    /// Bytes of the largest.
    pub largest: u64,
    /// How many are as large.
    pub as_large: u64,
    /// Number.
    pub count: u64,
}

/// Whether a block is free, set aside or not.
#[inline(always)]
fn is_free(block: &Block) -> bool {
    matches!(block.state, BlockState::Free | BlockState::Quick)
}

/// Whether two blocks in the order of addresses are free and become one.
#[inline(always)]
fn join(left: &Block, right: &Block) -> bool {
    is_free(left)
        && is_free(right)
        && (left.stream, left.segment) == (right.stream, right.segment)
        && left.addr.checked_add(left.size) == Some(right.addr)
}

/// Bytes of the free blocks at the beginning of `blocks`, in the order they are in, that join `block` and each other. `None`: too
/// many.
#[inline]
fn joining<'a>(
    mut block: &'a Block,
    blocks: impl Iterator<Item = &'a Block>,
    join: impl Fn(&Block, &Block) -> bool,
) -> Option<u64> {
    let mut bytes = 0u64;
    for (n, next) in blocks.enumerate() {
        if !join(block, next) {
            break;
        }
        if n == NEAR {
            return None;
        }
        bytes = bytes.saturating_add(next.size);
        block = next;
    }
    Some(bytes)
}

/// Bytes of each free block among `blocks`, which are in the order of their addresses, once what is set aside has joined its
/// neighbours.
pub fn free_sizes(blocks: &[Block]) -> impl Iterator<Item = u64> {
    let runs = blocks.chunk_by(join).filter(|run| run.first().is_some_and(is_free));
    runs.map(|run| run.iter().fold(0u64, |bytes, block| bytes.saturating_add(block.size)))
}

impl FreeSums {
    /// Sums up the free ones among `blocks`, which are in the order of their addresses.
    pub fn of(blocks: &[Block]) -> FreeSums {
        let mut sums = FreeSums::default();
        free_sizes(blocks).for_each(|bytes| sums.add(bytes));
        sums
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: FreeSums) -> FreeSums {
        let largest = self.largest.max(other.largest);
        let as_large = |sums: FreeSums| if sums.largest == largest { sums.as_large } else { 0 };
        FreeSums {
            bytes: self.bytes.saturating_add(other.bytes),
            largest,
            as_large: as_large(self) + as_large(other),
            count: self.count + other.count,
        }
    }

    #[inline]
    fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.count += 1;
        if bytes > self.largest {
            (self.largest, self.as_large) = (bytes, 0);
        }
        self.as_large += u64::from(bytes == self.largest);
    }

    /// Without one as large as the largest (`as_large` is 0) `largest` is too much.
    #[inline]
    fn remove(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.count = self.count.saturating_sub(1);
        self.as_large = self.as_large.saturating_sub(u64::from(bytes == self.largest));
    }

    /// Counts block `at` in, or out if not `more`, with what it joins. `false`: that is too many.
    #[inline]
    fn count(&mut self, blocks: &[Block], at: usize, more: bool) -> bool {
        let (before, [block, after @ ..]) = blocks.split_at(at) else {
            return true;
        };
        if !is_free(block) {
            return true;
        }
        let left = joining(block, before.iter().rev(), |block, next| join(next, block));
        let right = joining(block, after.iter(), join);
        let (Some(left), Some(right)) = (left, right) else {
            return false;
        };
        let whole = left.saturating_add(block.size).saturating_add(right);
        if more {
            [left, right]
                .into_iter()
                .filter(|n| *n > 0)
                .for_each(|n| self.remove(n));
            self.add(whole);
        } else {
            self.remove(whole);
            [left, right].into_iter().filter(|n| *n > 0).for_each(|n| self.add(n));
        }
        true
    }
}

/// One device with its figures and segments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceMap {
    /// The device.
    pub device: Device,
    /// Its figures. `None` when no consistent set could be read.
    pub stats: Option<DeviceStats>,
    /// Its segments by address.
    pub segments: Vec<Arc<SegmentMap>>,
}

impl DeviceMap {
    /// Sums over its free blocks.
    pub fn free(&self) -> FreeSums {
        self.segments
            .iter()
            .fold(FreeSums::default(), |sums, map| sums.and(map.free))
    }

    /// Every block, segment by segment, in address order.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.segments.iter().flat_map(|s| s.blocks.iter())
    }
}

/// The newest state a reader has seen. Cloning it copies pointers, not blocks.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Who publishes.
    pub identity: Arc<Identity>,
    /// Whether it lives.
    pub life: Life,
    /// Its devices, in the publisher's order.
    pub devices: Vec<DeviceMap>,
    /// Events published so far.
    pub event_count: u64,
    /// Events overwritten before this reader saw them.
    pub events_lost: u64,
    /// Blocks that did not fit into the block table.
    pub untracked_blocks: u64,
    /// Bytes of those.
    pub untracked_bytes: u64,
    /// Segments that changed faster than they could be read, or are stuck in a change because their publisher was stopped or killed
    /// in the middle of it. What is shown of them is their last consistent state, if there was one.
    pub lagging_segments: u32,
    /// Segments whose records contradict themselves or each other. They are not shown.
    pub malformed_segments: u32,
    /// When this was read: nanoseconds of `CLOCK_MONOTONIC`.
    pub read_at: u64,
    /// Strings by id; `strings[0]` is empty.
    pub strings: Arc<[Arc<str>]>,
}

impl Snapshot {
    /// The text of a string id; empty when the id is not (yet) known.
    pub fn string(&self, id: StringId) -> &str {
        self.strings.get(id.0 as usize).map_or("", |s| s)
    }
}

/// New events of one pass, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// The events.
    pub events: Vec<Event>,
    /// How many were overwritten before they could be read, since the pass before.
    pub lost: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever blocks are freed and taken, and in whatever order: the sums are those of counting everything anew.
    #[test]
    fn sums_follow_every_replacement() {
        let mut seed = 7u64;
        let mut next = move |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let states = [
            BlockState::Free,
            BlockState::Quick,
            BlockState::Quick,
            BlockState::Allocated,
        ];
        for round in 0..400 {
            // Some are longer than what a replacement looks at.
            let most = if round % 8 == 0 { 300 } else { 8 };
            let taken = if round % 16 == 0 { 3 } else { 4 };
            let mut addr = 0;
            let mut blocks = Vec::new();
            for _ in 0..1 + next(most) {
                let block = Block {
                    addr,
                    size: 512 << next(4),
                    state: states[next(taken) as usize],
                    stream: u64::from(next(8) == 0),
                    ..Block::default()
                };
                addr += block.size;
                blocks.push(block);
            }
            let mut map = SegmentMap::new(0, Segment::default(), blocks.into(), true);
            for _ in 0..next(20) {
                let at = next(map.blocks.len() as u64) as usize;
                let block = Block {
                    state: states[next(4) as usize],
                    stream: u64::from(next(8) == 0),
                    ..map.blocks[at]
                };
                map.replace(at, &block);
            }
            map.settle();
            assert_eq!(map.free, FreeSums::of(&map.blocks));
            let (left, right) = map.blocks.split_at(map.blocks.len() / 2);
            let whole = |(left, right): (&Block, &Block)| join(left, right);
            if !left.last().zip(right.first()).is_some_and(whole) {
                assert_eq!(map.free, FreeSums::of(left).and(FreeSums::of(right)));
            }
        }
    }
}
