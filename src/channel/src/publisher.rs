//! The publishing end: creates the file, holds its lock, and adds the time to what the writer stores.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::cells::Touched;
use crate::clock::Clock;
use crate::close_handle::CloseHandle;
use crate::facts::Facts;
use crate::format::Section;
use crate::lane::Lane;
use crate::layout::Layout;
use crate::map::{LockedFile, Map};
use crate::operation::{Operation, Published, Split};
use crate::record::{Block, BlockState, Device, Event, EventKind, Segment, StringId};
use crate::stats::DeviceStats;
use crate::writer::{Structure, Writer};

mod create;
mod fit;
mod managed;
mod sampled;

/// Publishes a channel. There is one writer: every method that stores takes `&mut self`.
///
/// After creation no method allocates (except [`Publisher::intern`]), makes a system call, blocks, or panics. In a
/// forked child every method does nothing.
///
/// A program that closes descriptors it did not open, as daemons do, is shown as ended from then on, because it
/// releases the lock of its channel.
pub struct Publisher {
    /// Stores nothing once the publisher is [gone](Publisher::gone).
    pub(crate) writer: Writer<Map>,
    // Declared after the writer, so that the lock is released last.
    _lock: LockedFile,
    path: PathBuf,
    strings: HashMap<Box<str>, StringId>,
    /// The clock of this writer. What follows an event belongs to the same operation and has the same time.
    clock: Clock,
    /// The access time of the file from before it had its name, in nanoseconds since 1970: nobody has asked for blocks.
    unasked: Option<u64>,
    /// The number of earlier figures that were published.
    past: usize,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Publisher {
    /// Returns the path of the channel's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is a forked child of the process that made the channel, in which nothing can be published.
    #[inline(always)]
    pub(crate) fn gone(&self) -> bool {
        self.writer.memory().inherited()
    }

    /// Returns the number of `text` in the channel's string table, which is always the same for the same text. Once the
    /// table is full, a new text gets the number of the empty string. Allocates when it first sees a text.
    pub fn intern(&mut self, text: &str) -> StringId {
        if text.is_empty() || self.gone() {
            return StringId(0);
        }
        if let Some(&id) = self.strings.get(text) {
            return id;
        }
        let id = StringId(self.writer.string(text).unwrap_or(0));
        // When the table is full, new texts are not remembered either: their number has no bound.
        if id != StringId(0) {
            self.strings.insert(text.into(), id);
        }
        id
    }

    /// Interns the name of a mark like [`Publisher::intern`]. A program may use another name at each step, so a quarter
    /// of the table is reserved for other strings.
    pub fn intern_mark(&mut self, text: &str) -> StringId {
        let full = self.strings.len() >= self.writer.strings() * 3 / 4;
        if full && !self.strings.contains_key(text) {
            return StringId(0);
        }
        self.intern(text)
    }

    /// Publishes a device under `index`. Segments, blocks, events and figures refer to it by this index.
    pub fn set_device(&mut self, index: u8, device: &Device) {
        if !self.gone() {
            self.writer.device(index, device);
        }
    }

    /// Appends to the event ring. `index` and `time` are filled in. The event must be published before what it
    /// describes.
    #[inline]
    pub fn event(&mut self, event: &Event) {
        if !self.gone() {
            let time = self.clock.read(self.writer.events());
            self.writer.event(&Event { time, ..*event });
        }
    }

    /// Publishes an [event](Publisher::event) about a block that changes the device's figures exactly as PyTorch
    /// defines for such an event. Returns whether [`Publisher::stats`] must be called after the blocks are published.
    /// Like [`Publisher::operation`] it may reuse the last clock reading.
    #[inline(always)]
    pub fn change(&mut self, kind: EventKind, about: &impl Facts) -> bool {
        self.change_with(kind, about, Split::NO, true)
    }

    /// Publishes an event like [`Publisher::change`]. `split` is the pool that counts the block as an inactive split
    /// while it is free. If not `follows`, the figures change in other ways too, and [`Publisher::stats`] is due.
    #[inline(always)]
    pub fn change_with(&mut self, kind: EventKind, about: &impl Facts, split: Split, follows: bool) -> bool {
        let time = self.clock.operation(about.size(), self.writer.events());
        self.writer.change(time, (kind, split), follows, about)
    }

    /// Publishes a block in `slot`, which must stay the same as long as the block lives; `next` is the slot of the next
    /// block in its segment. `time` is filled in: that of the last event. Any change other than of a block's state,
    /// owner or times belongs between [`Publisher::segment_begin`] and [`Publisher::segment_end`]. Returns false, and
    /// stores nothing, if the table has no such slot: see [`Publisher::untracked`].
    #[inline(always)]
    pub fn block(&mut self, slot: u32, block: &Block, next: Option<u32>) -> bool {
        self.block_of(slot, block.state, block, next)
    }

    /// Publishes a block like [`Publisher::block`], from the data of its owner.
    #[inline(always)]
    pub fn block_of(&mut self, slot: u32, state: BlockState, block: &impl Facts, next: Option<u32>) -> bool {
        self.writer.block(slot, self.clock.now(), state, block, next)
    }

    /// Publishes in one call what a request that hits the cache changes. It is the same as [`Publisher::event`] and
    /// then [`Publisher::block`], with two exceptions. Not every call reads the clock (see [`Event::time`]). And most
    /// calls defer the figures to their events: the figures must change exactly as PyTorch defines for the operation,
    /// or the caller must call [`Publisher::stats`].
    #[inline(always)]
    pub fn operation(&mut self, operation: &Operation<'_, impl Facts>) -> Published {
        let time = self.clock.operation(operation.block.size(), self.writer.events());
        self.writer.operation(time, operation)
    }

    /// Begins the changes in a segment made by a request that splits a block, or a free that joins blocks. To be called
    /// after the event. The changes end when the returned value is dropped, as between [`Publisher::segment_begin`] and
    /// [`Publisher::segment_close`]. Returns `None` in a forked child.
    #[inline(always)]
    pub fn structure(&mut self, segment: u32) -> Option<Structure<'_>> {
        self.writer.structure(segment, self.clock.now())
    }

    /// Whether the block table has this slot.
    pub fn has_slot(&self, slot: u32) -> bool {
        self.gone() || self.writer.has_slot(slot)
    }

    /// Empties a block slot. Returns false if the table has no such slot.
    pub fn clear_block(&mut self, slot: u32) -> bool {
        !self.gone() && self.writer.clear_block(slot)
    }

    /// Publishes the number and bytes of the live blocks without a slot.
    pub fn untracked(&mut self, blocks: u64, bytes: u64) {
        if !self.gone() {
            self.writer.untracked(blocks, bytes);
        }
    }

    /// Opens the segment in `slot` for a change of structure (its own record, split, join, growth).
    #[inline]
    pub fn segment_begin(&mut self, slot: u32) {
        if !self.gone() {
            self.writer.segment_begin(slot);
        }
    }

    /// Ends the change with the segment's new record and the slot of its first block; `None` if the segment is gone.
    #[inline]
    pub fn segment_end(&mut self, slot: u32, segment: Option<(&Segment, Option<u32>)>) {
        if !self.gone() {
            self.writer.segment_end(slot, segment);
        }
    }

    /// Ends the change and keeps the record: only its blocks changed, and not which one is first.
    #[inline]
    pub fn segment_close(&mut self, slot: u32) {
        if !self.gone() {
            self.writer.segment_close(slot);
        }
    }

    /// Opens the next lane, which publishes about one stream of a device concurrently with the publisher. Returns
    /// `None` if all lanes are taken, or in a forked child. A lane cannot be reopened after it is closed; instead of
    /// closing it, continue with another stream ([`Lane::continue_with`]).
    pub fn lane(&mut self, device: u8, stream: u64) -> Option<Lane> {
        if self.gone() {
            return None;
        }
        let memory = self.writer.memory().clone();
        let lane = self.writer.lane(memory, device, stream)?;
        Some(Lane::new(lane, self.clock.of_other()))
    }

    /// Returns a handle that closes the channel without the publisher.
    pub fn close_handle(&self) -> CloseHandle {
        CloseHandle::new(self.writer.memory(), self.writer.closed_word())
    }

    /// Orders the events of publisher and lane: what either has published so far comes before what either publishes
    /// from now on. This is called a meeting. The caller holds the locks of both.
    #[inline]
    pub fn meet(&mut self, lane: &mut Lane) {
        let (writer, clock) = lane.parts();
        self.writer.meet(writer);
        self.clock.meet(clock);
    }

    /// Reads the clock.
    pub(crate) fn time(&mut self) -> u64 {
        self.clock.read(self.writer.events())
    }

    /// Writes words 1.. of a record of an optional section. Returns false if the file has no such record.
    pub(crate) fn record<const N: usize>(
        &mut self,
        section: impl Fn(&Layout) -> Section,
        index: usize,
        data: [u64; N],
    ) -> bool {
        !self.gone() && self.writer.record(section, index, data)
    }

    /// Publishes a device's figures; `touched` says what changed since the last time.
    #[inline]
    pub fn stats(&mut self, device: u8, stats: &DeviceStats, touched: Touched) {
        if !self.gone() {
            self.writer.stats(device, stats, touched);
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if !self.gone() {
            self.writer.close();
        }
    }
}
