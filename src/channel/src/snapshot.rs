//! The values that a reader returns: plain, cheap to clone, and safe to keep.

use std::sync::Arc;

use crate::managed::Managed;
use crate::outside::Outside;
use crate::record::{Block, Device, Event, Segment, StringId};
use crate::sampled::Sampled;
use crate::stats::{DeviceStats, LaneFigures};

mod free;
#[cfg(test)]
mod tests;

pub use free::{FreeSums, free_sizes};

/// The identity of a publisher. Every field is the publisher's claim, checked where possible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Process id in the publisher's own pid namespace; only a label.
    pub pid: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22); distinguishes the process from another one
    /// with the same pid.
    pub start_time: u64,
    /// The kernel's boot id. A file of another boot is dead whatever its lock says. Zeros if the publisher could not
    /// read it.
    pub boot_id: [u8; 16],
    /// Inode of the publisher's pid namespace.
    pub pid_namespace: u64,
    /// The publisher's user, from the file's owner.
    pub uid: u32,
    /// When the channel was created: nanoseconds since 1970.
    pub created_realtime: u64,
    /// The same moment on `CLOCK_MONOTONIC`, to convert the times of blocks and events.
    pub created_monotonic: u64,
    /// Name of the program.
    pub program: String,
    /// Label of the job; empty if not set.
    pub job: String,
    /// Rank in a distributed job (`RANK`).
    pub rank: Option<u32>,
    /// Rank on this machine (`LOCAL_RANK`).
    pub local_rank: Option<u32>,
    /// Number of ranks (`WORLD_SIZE`).
    pub world_size: Option<u32>,
}

/// Whether a publisher is alive, and if not, how it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Life {
    /// The file's lock is held.
    #[default]
    Alive,
    /// The lock is free, and the publisher closed the channel.
    Closed,
    /// The lock is free, and the publisher did not close the channel: it was killed, it crashed, or the machine lost
    /// power. The file is its black box.
    Died,
}

/// A segment with its blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SegmentMap {
    /// The slot in which it is published; it does not change while the segment exists.
    pub slot: u32,
    /// The segment's record.
    pub segment: Segment,
    /// Its blocks by address. They tile the segment exactly if `complete`.
    pub blocks: Box<[Block]>,
    /// False if some of its blocks are untracked or could not be read consistently. `blocks` then has the known ones.
    pub complete: bool,
    /// Sums over its free blocks.
    pub free: FreeSums,
    /// Whether the sums must be recomputed.
    recount: bool,
}

impl SegmentMap {
    /// Makes a map of a segment with these blocks.
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

    /// Replaces block `at` by its next state, at the same address. The caller must call [`SegmentMap::settle`]
    /// afterwards.
    #[inline]
    pub(crate) fn replace(&mut self, at: usize, block: &Block) {
        if at >= self.blocks.len() {
            return;
        }
        self.recount = self.recount || !self.free.count(&self.blocks, at, false);
        self.blocks[at] = *block;
        self.recount = self.recount || !self.free.count(&self.blocks, at, true);
    }

    /// Recomputes the largest free block if it was replaced.
    pub(crate) fn settle(&mut self) {
        match self.free {
            _ if std::mem::take(&mut self.recount) => self.free = FreeSums::of(&self.blocks),
            FreeSums { count: 0, .. } => self.free = FreeSums::default(),
            FreeSums { as_large: 0, .. } => self.free = FreeSums::of(&self.blocks),
            _ => {}
        }
    }
}

/// A device with its figures and segments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceMap {
    /// The device's record.
    pub device: Device,
    /// Its figures; `None` if no consistent set could be read.
    pub stats: Option<DeviceStats>,
    /// How the figures contradict themselves or the segments, as text. They must then not be used.
    pub contradiction: Option<&'static str>,
    /// Its segments by address.
    pub segments: Vec<Arc<SegmentMap>>,
    /// What its process uses outside of the allocator; `None` if the publisher does not say, and after a
    /// [glance](crate::Reader::glance).
    pub outside: Option<Outside>,
}

impl DeviceMap {
    /// Returns sums over its free blocks.
    pub fn free(&self) -> FreeSums {
        self.segments
            .iter()
            .fold(FreeSums::default(), |sums, map| sums.and(map.free))
    }

    /// Iterates over every block, segment by segment, in address order.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.segments.iter().flat_map(|s| s.blocks.iter())
    }
}

/// The state of a lane, which publishes about one stream. Its figures are a part of its device's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneView {
    /// Index into the channel's devices.
    pub device: u8,
    /// The current stream of the lane. It may have had other streams before.
    pub stream: u64,
    /// Whether the lane is open.
    pub open: bool,
    /// Number of its events that its figures include: all so far, or all but those of an unfinished operation.
    pub event_count: u64,
    /// Its figures.
    pub figures: LaneFigures,
}

/// The newest state of a channel. Cloning it copies pointers, not blocks.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The publisher.
    pub identity: Arc<Identity>,
    /// Whether the publisher is alive.
    pub life: Life,
    /// Its devices, in the publisher's order.
    pub devices: Vec<DeviceMap>,
    /// Its lanes, in the order in which they were opened. An event's [`lane`](Event::lane) is an index into these.
    pub lanes: Vec<LaneView>,
    /// Number of events published so far, including those of the lanes.
    pub event_count: u64,
    /// Number of events overwritten before this reader saw them.
    pub events_lost: u64,
    /// Number of blocks that did not fit into the block table, or whose segment did not fit into the segment table.
    /// After a [glance](crate::Reader::glance) the latter are those of the last full read.
    pub untracked_blocks: u64,
    /// Bytes of the untracked blocks.
    pub untracked_bytes: u64,
    /// Number of segments that changed faster than they could be read, or whose publisher was stopped or killed during
    /// a change. Their last consistent state is shown, if there was one.
    pub lagging_segments: u32,
    /// Number of segments whose records contradict themselves or each other. They are not shown.
    pub malformed_segments: u32,
    /// Its managed memory; `None` if the file has no place for it, and after a [glance](crate::Reader::glance).
    pub managed: Option<Managed>,
    /// When its publisher sampled another allocator, if it does; `None` also after a [glance](crate::Reader::glance).
    pub sampled: Option<Sampled>,
    /// When this was read: nanoseconds of `CLOCK_MONOTONIC`.
    pub read_at: u64,
    /// Strings by id; `strings[0]` is empty.
    pub strings: Arc<[Arc<str>]>,
}

impl Snapshot {
    /// Returns the text of a string id; empty if the id is not (yet) known.
    pub fn string(&self, id: StringId) -> &str {
        self.strings.get(id.0 as usize).map_or("", |s| s)
    }
}

/// New events of one pass, in the order of [`Reader::events`](crate::Reader::events).
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// The events in order.
    pub events: Vec<Event>,
    /// Number of events overwritten before they could be read, since the previous pass.
    pub lost: u64,
}
