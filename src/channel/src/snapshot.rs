//! What a reader hands out: plain values, cheap to clone, safe to keep.

use std::sync::Arc;

use crate::record::{Block, Device, Event, Segment, StringId};
use crate::stats::{DeviceStats, LaneFigures};

mod free;
#[cfg(test)]
mod tests;

pub use free::{FreeSums, free_sizes};

/// Who publishes. Every field is a claim of the publisher's, checked where that is possible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Process id in the publisher's own pid namespace: a label.
    pub pid: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22); tells a reused pid from the real one.
    pub start_time: u64,
    /// The kernel's boot id; a file of another boot is dead whatever its lock says. Zeros where the publisher could not read it.
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

/// One device with its figures and segments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceMap {
    /// The device.
    pub device: Device,
    /// Its figures. `None` when no consistent set could be read.
    pub stats: Option<DeviceStats>,
    /// How they contradict themselves or the segments, in words. They are then worth nothing.
    pub contradiction: Option<&'static str>,
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

/// What is published about one stream by somebody other than the publisher. Its figures are a part of its device's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneView {
    /// Index into the channel's devices.
    pub device: u8,
    /// The stream that it is about now. Others, which have ended, may have been before it.
    pub stream: u64,
    /// Whether more may come.
    pub open: bool,
    /// Events on it that its figures are after: all so far, or all but those of what it is doing.
    pub event_count: u64,
    /// What it counts.
    pub figures: LaneFigures,
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
    /// Its lanes, in the order in which they were opened: number `n` of an event's [`lane`](Event::lane) is the `n`th.
    pub lanes: Vec<LaneView>,
    /// Events published so far, those of the lanes included.
    pub event_count: u64,
    /// Events overwritten before this reader saw them.
    pub events_lost: u64,
    /// Blocks that did not fit into the block table, or are of segments that did not fit into theirs. A [glance](crate::Reader::glance)
    /// shows the latter as they were when all was read last.
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

/// New events of one pass, in the order of [`Reader::events`](crate::Reader::events).
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// The events.
    pub events: Vec<Event>,
    /// How many were overwritten before they could be read, since the pass before.
    pub lost: u64,
}
