//! The writer: which words are stored, and in which order.
//!
//! An allocator's operation is published as event, then blocks, then figures. So the last event names the operation
//! that a kill interrupted, and a reader that sees a changed block can find its event.
//!
//! The writer keeps every number it needs in its own memory. It never reads shared memory, so no other process can
//! influence it through the channel.

use crate::cells::{CellWriter, Touched};
use crate::codec::{self, EventMeta};
use crate::facts::{Facts, Unheld};
use crate::format::{Section, live, words};
use crate::lane::LaneWriter;
use crate::layout::Layout;
use crate::operation::{Operation, Published, Split};
use crate::put::{self, Ring, Slots, WRITERS};
use crate::record::{BlockState, Device, Event, EventKind};
use crate::seqlock;
use crate::stats::DeviceStats;
use crate::text;
use crate::word::{Word, Words};

mod structure;

pub use structure::Structure;

/// The writer of a channel, generic over the kind of memory.
pub(crate) struct Writer<M> {
    memory: M,
    layout: Layout,
    ring: Ring,
    slots: Slots,
    /// Number of the last write of a block or segment; only grows. It is a multiple of [`WRITERS`], so that a slot
    /// written by both a lane and the publisher never has the same number twice.
    ticket: u64,
    events: u64,
    /// Number of meetings with lanes so far.
    order: u32,
    lanes: usize,
    strings: usize,
    devices: usize,
    used_blocks: usize,
    used_segments: usize,
    untracked_blocks: u64,
    untracked_bytes: u64,
    /// The segments that are open for a change of structure, each with its ticket. At most a few are open at once.
    open_segments: Vec<(u32, u64)>,
    cells: Vec<CellWriter>,
}

impl<M: Words> Writer<M> {
    /// Makes a writer over zeroed words laid out as `layout`.
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
            strings: 0,
            devices: 0,
            used_blocks: 0,
            used_segments: 0,
            untracked_blocks: 0,
            untracked_bytes: 0,
            open_segments: Vec::with_capacity(16),
            cells: vec![CellWriter::new(layout.events.count); layout.devices.count],
        }
    }

    /// Returns the number of events so far.
    #[inline(always)]
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn memory(&self) -> &M {
        &self.memory
    }

    /// Stores a counter of the live section. A reader that sees the count also sees everything stored before it.
    #[inline(always)]
    fn publish_live(&self, which: usize, value: u64) {
        M::W::release_fence();
        self.memory.words()[self.layout.live.start + which].put(value);
    }

    /// Stops deferring figures to events until the figures are written.
    fn stop_deferring(&mut self) {
        self.cells.iter_mut().for_each(CellWriter::stop_deferring);
    }

    /// Appends to the event ring. The event's own index is ignored.
    pub(crate) fn event(&mut self, event: &Event) {
        self.change(event.time, (event.kind, event.split.into()), false, event);
    }

    /// Appends an event. `follows` says whether its effect on the device's figures follows from it. Returns whether the
    /// figures are due.
    #[inline(always)]
    pub(crate) fn change(
        &mut self,
        time: u64,
        (kind, split): (EventKind, Split),
        follows: bool,
        about: &impl Facts,
    ) -> bool {
        let Some(words) = self.memory.here() else {
            return false;
        };
        let what = EventMeta {
            time,
            kind,
            split,
            follows,
            order: self.order,
        };
        put::event(words, &self.ring, &mut self.events, what, about);
        if !follows {
            self.stop_deferring();
        }
        let cell = self.cells.get_mut(about.device() as usize);
        cell.is_some_and(|cell| !cell.defers(self.events))
    }

    /// Does [`Writer::change`], with figures that follow, and [`Writer::block`] in one call. The tag and requested size
    /// of a free block are stored in its event only.
    #[inline(always)]
    pub(crate) fn operation(&mut self, time: u64, operation: &Operation<'_, impl Facts>) -> Published {
        let Operation {
            kind,
            slot,
            state,
            block,
            next,
            split,
        } = *operation;
        let figures_due = self.change(time, (kind, split), true, block);
        let stored = match state {
            BlockState::Free | BlockState::Quick => self.block(slot, time, state, &Unheld(block), next),
            _ => self.block(slot, time, state, block, next),
        };
        Published { stored, figures_due }
    }

    /// Writes a block slot. `next` is the slot of the next block in its segment, if any. Returns false if there is no
    /// such slot.
    #[inline(always)]
    pub(crate) fn block(
        &mut self,
        slot: u32,
        time: u64,
        state: BlockState,
        block: &impl Facts,
        next: Option<u32>,
    ) -> bool {
        let Some(words) = self.memory.here() else {
            return true;
        };
        let slot = slot as usize;
        self.ticket += WRITERS;
        let stored = put::block::<false, _>(words, &self.slots, self.ticket, (slot, time, state, next), block);
        if stored && slot >= self.used_blocks {
            self.used_blocks = slot + 1;
            use_block(words, &self.layout, slot);
        }
        stored
    }

    /// Empties a block slot.
    pub(crate) fn clear_block(&mut self, slot: u32) -> bool {
        self.ticket += WRITERS;
        let words = self.memory.here();
        words.is_none_or(|words| put::empty_block(words, &self.slots, self.ticket, slot as usize))
    }

    /// Publishes the number and bytes of the live blocks without a slot.
    pub(crate) fn untracked(&mut self, blocks: u64, bytes: u64) {
        if (blocks, bytes) != (self.untracked_blocks, self.untracked_bytes) {
            (self.untracked_blocks, self.untracked_bytes) = (blocks, bytes);
            self.publish_live(live::UNTRACKED_BLOCKS, blocks);
            self.publish_live(live::UNTRACKED_BYTES, bytes);
        }
    }

    /// Publishes a device's figures.
    #[inline(always)]
    pub(crate) fn stats(&mut self, device: u8, stats: &DeviceStats, touched: Touched) {
        let device = device as usize;
        let words = self.memory.words();
        let cells = put::record(words, self.layout.stats.start + device * words::STATS);
        if let (Some(cell), Some(cells)) = (self.cells.get_mut(device), cells) {
            cell.write(cells, stats, touched, self.events);
        }
    }

    /// Writes words 1.. of a record that is guarded by its sequence word. Returns false if the section has no such
    /// record.
    pub(crate) fn record<const N: usize>(
        &mut self,
        section: impl Fn(&Layout) -> Section,
        index: usize,
        data: [u64; N],
    ) -> bool {
        let section = section(&self.layout);
        if index >= section.count {
            return false;
        }
        self.ticket += WRITERS;
        let record = &self.memory.words()[section.record(index)];
        seqlock::begin(record, self.ticket);
        for (word, value) in record[1..].iter().zip(data) {
            word.put(value);
        }
        seqlock::end(record, self.ticket);
        true
    }

    /// Writes or rewrites a device.
    pub(crate) fn device(&mut self, index: u8, device: &Device) {
        let index = index as usize;
        if self.record(|layout| layout.devices, index, codec::encode_device(device)) && index >= self.devices {
            self.devices = index + 1;
            self.publish_live(live::DEVICES, self.devices as u64);
        }
    }

    /// Returns the size of the string table, including the empty string.
    pub(crate) fn strings(&self) -> usize {
        self.layout.strings.count
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

    /// Opens the next lane, if there is one, over the same words. Everything published so far comes before what the
    /// lane publishes.
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

    /// Gives later events of both writers a higher number than their earlier events. Lanes do not meet each other.
    /// Readers compare numbers by their difference, so that they may wrap around.
    pub(crate) fn meet(&mut self, lane: &mut LaneWriter<M>) {
        self.order = self.order.wrapping_add(1);
        lane.meet(self.order);
    }

    /// Returns the index of the word that marks the channel as closed.
    pub(crate) fn closed_word(&self) -> usize {
        self.layout.live.start + live::CLOSED
    }

    /// Marks the channel as closed, so that its file is not taken for that of a program that died.
    pub(crate) fn close(&mut self) {
        self.publish_live(live::CLOSED, 1);
    }
}

/// Updates the count of used slots to include this one.
#[cold]
fn use_block<W: Word>(words: &[W], layout: &Layout, slot: usize) {
    W::release_fence();
    words[layout.live.start + live::BLOCKS].put(slot as u64 + 1);
}
