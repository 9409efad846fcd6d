//! Publishing: what is stored, and in which order.
//!
//! One operation of an allocator is published as event, then blocks, then figures. So the last event names the operation that a
//! kill interrupted, and a reader that sees a changed block can find out why.
//!
//! Every number the writer needs is its own: it never reads shared memory, so nobody can steer it through its channel.

use crate::cells::{CellWriter, Touched};
use crate::codec::{self, NO_SLOT};
use crate::lane::LaneWriter;
use crate::layout::{Layout, live, words};
use crate::put::{self, Ring, Slots, WRITERS};
use crate::record::{Block, Device, Event, Segment};
use crate::seqlock;
use crate::stats::DeviceStats;
use crate::text;
use crate::word::{Word, Words};

mod structure;

pub use structure::{Placed, Structure};

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Whether the table has a slot for its block.
    pub stored: bool,
    /// Whether the device's figures must be published now, with all that changed since they were. Otherwise its event tells them.
    pub figures_due: bool,
}

/// The writing half of a channel over any words.
pub(crate) struct Writer<M> {
    memory: M,
    layout: Layout,
    ring: Ring,
    slots: Slots,
    /// Numbers every write of a block or segment; only ever grows. A multiple of [`WRITERS`]: a slot that a lane writes in turn with
    /// the publisher never has the same number twice.
    ticket: u64,
    events: u64,
    /// Meetings with lanes so far.
    order: u32,
    /// Events whose effect on the figures does not follow from them, and changes of segments: after one the figures are written
    /// before any are left to their events.
    others: u64,
    lanes: usize,
    strings: usize,
    devices: usize,
    used_blocks: usize,
    used_segments: usize,
    untracked_blocks: u64,
    untracked_bytes: u64,
    /// Ticket under which each segment is open for a change of structure; 0 when closed. At most a few are open at once.
    open_segments: Vec<(u32, u64)>,
    cells: Vec<CellWriter>,
}

impl<M: Words> Writer<M> {
    /// A writer over zeroed words laid out as `layout`.
    pub(crate) fn new(memory: M, layout: Layout) -> Writer<M> {
        Writer {
            memory,
            ring: Ring::of_publisher(&layout),
            slots: Slots::of_publisher(&layout),
            layout,
            ticket: 0,
            events: 0,
            order: 0,
            lanes: 0,
            others: 0,
            strings: 0,
            devices: 0,
            used_blocks: 0,
            used_segments: 0,
            untracked_blocks: 0,
            untracked_bytes: 0,
            open_segments: Vec::with_capacity(16),
            cells: vec![CellWriter::default(); layout.devices.count],
        }
    }

    pub(crate) fn memory(&self) -> &M {
        &self.memory
    }

    /// Stores a live counter that only counts what is complete: everything stored before is seen by whoever sees the count.
    #[inline(always)]
    fn publish_live(&self, which: usize, value: u64) {
        M::W::release_fence();
        self.memory.words()[self.layout.live.start + which].put(value);
    }

    #[inline(always)]
    fn append(&mut self, event: &Event, follows: bool) {
        let data = codec::event(event, follows, self.order);
        self.events += put::event(self.memory.words(), &self.ring, self.events, data);
    }

    /// Appends to the event ring. The event's own index is ignored.
    #[inline(always)]
    pub(crate) fn event(&mut self, event: &Event) {
        self.append(event, false);
        self.others += 1;
    }

    /// [`Writer::event`] where what it does to the device's figures follows from it. Whether they are due all the same.
    #[inline(always)]
    pub(crate) fn change(&mut self, event: &Event) -> bool {
        self.append(event, true);
        let cell = self.cells.get_mut(event.device as usize);
        cell.is_some_and(|cell| !cell.leaves(self.others))
    }

    /// [`Writer::event`] and [`Writer::block`] in one go, with one look at whether the memory is there. In a forked child it is not,
    /// and nothing is stored. What the event does to the figures follows from it, so that they need not be written every time.
    #[inline(always)]
    pub(crate) fn operation(&mut self, event: &Event, slot: u32, block: &Block, next: Option<u32>) -> Told {
        let words = self.memory.words();
        if words.is_empty() {
            return Told {
                stored: true,
                figures_due: false,
            };
        }
        self.events += put::event(words, &self.ring, self.events, codec::event(event, true, self.order));
        let stored = (slot as usize) < self.slots.count;
        if stored {
            self.ticket += WRITERS;
            let data = codec::block(block, next.unwrap_or(NO_SLOT));
            put::block(words, &self.slots, self.ticket, slot as usize, data);
            self.used_blocks = use_block(words, &self.layout, self.used_blocks, slot as usize);
        }
        let cell = self.cells.get_mut(event.device as usize);
        let figures_due = cell.is_some_and(|cell| !cell.leaves(self.others));
        Told { stored, figures_due }
    }

    /// Writes a block slot. `next` is the slot of the block after it in its segment, if any. Returns false if there is no such slot.
    #[inline(always)]
    pub(crate) fn block(&mut self, slot: u32, block: &Block, next: Option<u32>) -> bool {
        let slot = slot as usize;
        if slot >= self.layout.blocks.count {
            return false;
        }
        self.ticket += WRITERS;
        let words = self.memory.words();
        let data = codec::block(block, next.unwrap_or(NO_SLOT));
        put::block(words, &self.slots, self.ticket, slot, data);
        self.used_blocks = use_block(words, &self.layout, self.used_blocks, slot);
        true
    }

    /// Empties a block slot.
    pub(crate) fn clear_block(&mut self, slot: u32) -> bool {
        self.ticket += WRITERS;
        put::empty_block(self.memory.words(), &self.slots, self.ticket, slot as usize)
    }

    /// Says how many live blocks have no slot, and their bytes.
    pub(crate) fn untracked(&mut self, blocks: u64, bytes: u64) {
        if (blocks, bytes) != (self.untracked_blocks, self.untracked_bytes) {
            (self.untracked_blocks, self.untracked_bytes) = (blocks, bytes);
            self.publish_live(live::UNTRACKED_BLOCKS, blocks);
            self.publish_live(live::UNTRACKED_BYTES, bytes);
        }
    }

    /// Opens a segment for a change of structure: until [`Writer::segment_end`] no reader believes its blocks.
    #[inline]
    pub(crate) fn segment_begin(&mut self, slot: u32) {
        let index = slot as usize;
        if index >= self.layout.segments.count || self.open_segments.iter().any(|open| open.0 == slot) {
            return;
        }
        self.ticket += WRITERS;
        if index >= self.used_segments {
            self.used_segments = index + 1;
            self.publish_live(live::SEGMENTS, self.used_segments as u64);
        }
        seqlock::begin(&self.memory.words()[self.layout.segments.record(index)], self.ticket);
        self.open_segments.push((slot, self.ticket));
    }

    /// Closes it again with its new record and the slot of its first block; `None` empties the slot.
    #[inline]
    pub(crate) fn segment_end(&mut self, slot: u32, segment: Option<(&Segment, Option<u32>)>) {
        let Some(at) = self.open_segments.iter().position(|open| open.0 == slot) else {
            return;
        };
        let (_, ticket) = self.open_segments.swap_remove(at);
        // What changes a segment changes figures, too.
        self.others += 1;
        let record = &self.memory.words()[self.layout.segments.record(slot as usize)];
        let data = segment.map_or([0; codec::SEGMENT_DATA], |(s, first)| {
            codec::segment(s, first.unwrap_or(NO_SLOT))
        });
        for (word, value) in record[1..].iter().zip(data) {
            word.put(value);
        }
        seqlock::end(record, ticket);
    }

    /// Closes it again with the record it had.
    #[inline]
    pub(crate) fn segment_close(&mut self, slot: u32) {
        if let Some(at) = self.open_segments.iter().position(|open| open.0 == slot) {
            let (_, ticket) = self.open_segments.swap_remove(at);
            seqlock::end(&self.memory.words()[self.layout.segments.record(slot as usize)], ticket);
        }
    }

    /// Publishes a device's figures.
    #[inline(always)]
    pub(crate) fn stats(&mut self, device: u8, stats: &DeviceStats, touched: Touched) {
        let device = device as usize;
        let words = self.memory.words();
        let cells = put::record(words, self.layout.stats.start + device * words::STATS);
        if let (Some(cell), Some(cells)) = (self.cells.get_mut(device), cells) {
            cell.write(cells, stats, touched, (self.events, self.others));
        }
    }

    /// Writes or rewrites a device.
    pub(crate) fn device(&mut self, index: u8, device: &Device) {
        let index = index as usize;
        if index >= self.layout.devices.count {
            return;
        }
        self.ticket += WRITERS;
        let record = &self.memory.words()[self.layout.devices.record(index)];
        seqlock::begin(record, self.ticket);
        for (word, value) in record[1..].iter().zip(codec::device(device)) {
            word.put(value);
        }
        seqlock::end(record, self.ticket);
        if index >= self.devices {
            self.devices = index + 1;
            self.publish_live(live::DEVICES, self.devices as u64);
        }
    }

    /// Appends a string and returns its number; `None` when the table is full. Number 0 is the empty string and is never stored.
    pub(crate) fn string(&mut self, string: &str) -> Option<u32> {
        let index = self.strings + 1;
        if index >= self.layout.strings.count {
            return None;
        }
        let record = &self.memory.words()[self.layout.strings.record(index)];
        let mut packed = [0; words::STRING - 1];
        let len = text::pack(string, &mut packed);
        for (word, value) in record[1..].iter().zip(packed) {
            word.put(value);
        }
        record[0].put(len as u64);
        self.strings = index;
        self.publish_live(live::STRINGS, index as u64 + 1);
        Some(index as u32)
    }

    /// Opens the next lane, if there is one, over the same words. What was published so far comes before what it publishes.
    pub(crate) fn lane(&mut self, memory: M, device: u8, stream: u64) -> Option<LaneWriter<M>> {
        if self.lanes == self.layout.lanes.count || usize::from(device) >= self.layout.devices.count {
            return None;
        }
        let mut lane = LaneWriter::open(memory, &self.layout, self.lanes, device, stream);
        self.meet(&mut lane);
        self.lanes += 1;
        self.publish_live(live::LANES, self.lanes as u64);
        Some(lane)
    }

    /// Numbers what comes after on either higher than what came before on either: lanes meet nobody else. Readers compare numbers by
    /// their difference, so that they may wrap.
    pub(crate) fn meet(&mut self, lane: &mut LaneWriter<M>) {
        self.order = self.order.wrapping_add(1);
        lane.meet(self.order);
    }

    /// Says goodbye: the file that stays behind is that of a program that ended in order.
    pub(crate) fn close(&mut self) {
        self.publish_live(live::CLOSED, 1);
    }
}

/// Counts `slot` as used; how many are.
#[inline(always)]
fn use_block<W: Word>(words: &[W], layout: &Layout, used: usize, slot: usize) -> usize {
    if slot < used {
        return used;
    }
    W::release_fence();
    words[layout.live.start + live::BLOCKS].put(slot as u64 + 1);
    slot + 1
}
