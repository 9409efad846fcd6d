//! The publishing end: makes the file, holds its lock, and stamps what the writer stores.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::cells::Touched;
use crate::facts::Facts;
use crate::goodbye::Goodbye;
use crate::lane::Lane;
use crate::map::{LockedFile, Map};
use crate::operation::{Operation, Split, Told};
use crate::record::{Block, BlockState, Device, Event, EventKind, Segment, StringId};
use crate::stamp::Stamp;
use crate::stats::DeviceStats;
use crate::writer::{Structure, Writer};

mod create;
mod fit;

/// A channel being published. One writer: every method that stores takes `&mut self`.
///
/// After creation nothing here allocates (except [`Publisher::intern`]), makes a system call, blocks, or panics. In a forked child
/// every method does nothing.
///
/// A program that closes descriptors which it did not open, as daemons do, is shown as ended from then on: the lock of its channel goes
/// with them.
pub struct Publisher {
    /// Nothing is stored once the publisher is [gone](Publisher::gone).
    pub(crate) writer: Writer<Map>,
    // Declared after the writer: the lock is let go of last.
    _lock: LockedFile,
    path: PathBuf,
    strings: HashMap<Box<str>, StringId>,
    /// What follows an event belongs to the same operation and carries the same time.
    stamp: Stamp,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Publisher {
    /// The channel's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is nothing to publish to: we are a forked child of the process that made the channel.
    #[inline(always)]
    pub(crate) fn gone(&self) -> bool {
        self.writer.memory().inherited()
    }

    /// The number of `text` in the channel's string table, the same for the same text. The empty string once the table is full.
    /// Allocates the first time it sees a text.
    pub fn intern(&mut self, text: &str) -> StringId {
        if text.is_empty() || self.gone() {
            return StringId(0);
        }
        if let Some(&id) = self.strings.get(text) {
            return id;
        }
        let id = StringId(self.writer.string(text).unwrap_or(0));
        // A full table remembers no more texts either: they could be without end.
        if id != StringId(0) {
            self.strings.insert(text.into(), id);
        }
        id
    }

    /// The same for the name of a mark, which may be another one each step: a quarter of the table is left to who holds memory.
    pub fn intern_mark(&mut self, text: &str) -> StringId {
        let full = self.strings.len() >= self.writer.strings() * 3 / 4;
        if full && !self.strings.contains_key(text) {
            return StringId(0);
        }
        self.intern(text)
    }

    /// Publishes a device under `index`, by which segments, blocks, events and figures name it.
    pub fn set_device(&mut self, index: u8, device: &Device) {
        if !self.gone() {
            self.writer.device(index, device);
        }
    }

    /// Appends to the event ring. `index` and `time` are filled in. To be called before what the event describes is published.
    #[inline]
    pub fn event(&mut self, event: &Event) {
        if !self.gone() {
            let time = self.stamp.look(self.writer.events());
            self.writer.event(&Event { time, ..*event });
        }
    }

    /// [`Publisher::event`] about a block, where what it does to the device's figures is what PyTorch's definitions say that such an
    /// event does, and nothing else. Returns whether [`Publisher::stats`] has to follow, once the blocks are told. Like
    /// [`Publisher::operation`] it need not look at the clock.
    #[inline(always)]
    pub fn change(&mut self, kind: EventKind, about: &impl Facts) -> bool {
        self.change_with(kind, about, Split::NO, true)
    }

    /// The same of a block that this pool counts as an inactive split while it is free, or (not `follows`) where more becomes of the
    /// figures, which then are due.
    #[inline(always)]
    pub fn change_with(&mut self, kind: EventKind, about: &impl Facts, split: Split, follows: bool) -> bool {
        let time = self.stamp.operation(about.size(), self.writer.events());
        self.writer.change(time, (kind, split), follows, about)
    }

    /// Publishes a block in `slot`, stable for as long as the block lives; `next` is the slot of the block behind it in its segment.
    /// `time` is filled in: that of the last event. Any change other than of a block's state, owner or times belongs between [`Publisher::segment_begin`] and
    /// [`Publisher::segment_end`]. Returns false, and stores nothing, if the table has no such slot: see [`Publisher::untracked`].
    #[inline(always)]
    pub fn block(&mut self, slot: u32, block: &Block, next: Option<u32>) -> bool {
        self.block_of(slot, block.state, block, next)
    }

    /// [`Publisher::block`] as its owner keeps it.
    #[inline(always)]
    pub fn block_of(&mut self, slot: u32, state: BlockState, block: &impl Facts, next: Option<u32>) -> bool {
        self.writer.block(slot, self.stamp.now(), state, block, next)
    }

    /// What a request that hits the cache publishes, in one go. The same as [`Publisher::event`] and [`Publisher::block`] one after the
    /// other, except that not every one looks at the clock (see [`Event::time`]), and that the figures of most are left to their
    /// events: nothing may have changed of them but what PyTorch's definitions say that the operation changes, or
    /// [`Publisher::stats`] has to follow.
    #[inline(always)]
    pub fn operation(&mut self, operation: &Operation<'_, impl Facts>) -> Told {
        let time = self.stamp.operation(operation.block.size(), self.writer.events());
        self.writer.operation(time, operation)
    }

    /// What a request that splits a block, or a free that joins some, changes in a segment, after its event: until the end of what this
    /// returns, as between [`Publisher::segment_begin`] and [`Publisher::segment_close`]. `None` in a forked child.
    #[inline(always)]
    pub fn structure(&mut self, segment: u32) -> Option<Structure<'_>> {
        self.writer.structure(segment, self.stamp.now())
    }

    /// Whether the table has a slot.
    pub fn has_slot(&self, slot: u32) -> bool {
        self.gone() || self.writer.has_slot(slot)
    }

    /// Empties a slot. Returns false if the table has no such slot.
    pub fn clear_block(&mut self, slot: u32) -> bool {
        !self.gone() && self.writer.clear_block(slot)
    }

    /// Says how many blocks were refused a slot and still live, and their bytes.
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

    /// Closes it again with its new record and the slot of its first block; `None` when the segment is gone.
    #[inline]
    pub fn segment_end(&mut self, slot: u32, segment: Option<(&Segment, Option<u32>)>) {
        if !self.gone() {
            self.writer.segment_end(slot, segment);
        }
    }

    /// Closes it again with the record it had: only its blocks changed, and not which is the first.
    #[inline]
    pub fn segment_close(&mut self, slot: u32) {
        if !self.gone() {
            self.writer.segment_close(slot);
        }
    }

    /// Opens the next lane: what is published about one stream of a device by somebody other than the publisher, and at the same
    /// time. `None` when all are taken, or in a forked child.
    /// A lane is taken for good, also once it is closed; instead of that it can go on about another stream
    /// ([`Lane::continue_with`]).
    pub fn lane(&mut self, device: u8, stream: u64) -> Option<Lane> {
        if self.gone() {
            return None;
        }
        let memory = self.writer.memory().clone();
        let lane = self.writer.lane(memory, device, stream)?;
        Some(Lane::new(lane, self.stamp.of_other()))
    }

    /// What says goodbye without the publisher, once.
    pub fn goodbye(&self) -> Goodbye {
        Goodbye::new(self.writer.memory(), self.writer.closed_word())
    }

    /// Orders events: what was published on either comes before what comes after on either. The caller holds the locks of both.
    #[inline]
    pub fn meet(&mut self, lane: &mut Lane) {
        let (writer, stamp) = lane.parts();
        self.writer.meet(writer);
        self.stamp.meet(stamp);
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
