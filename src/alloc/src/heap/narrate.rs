//! What the channel is told.
//!
//! Every operation tells its event first, so that the last event of a killed process names the operation that was going
//! on, then the blocks, then the figures. Changes of structure are bracketed: from `segment_begin` to [`Heap::show_segment`]
//! or `segment_close`, or as one `structure`.

use gpumem_channel as channel;
use gpumem_channel::{
    BlockState, Event, EventKind, ManagedBlock, ManagedCounters, ManagedRange, Operation, PoolId, SegmentKind, Split,
    StringId,
};

pub(super) mod labels;
mod seen;
mod structure;

use super::Heap;
use super::allocate::Request;
use super::block::{NIL, some};
use super::segment::Segment;
use crate::config::SegmentMode;
use crate::device::DeviceInfo;
use crate::publish::{DEVICE, ManagedSlot};
use crate::report::{Help, OomReport};
use crate::size::Class;
use crate::tag::{self, Tag};
use seen::Seen;

/// Tags of programs that do not publish.
const UNPUBLISHED: u32 = 1 << 31;

/// Nanoseconds of `CLOCK_MONOTONIC`, the channel's clock.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The device as the channel describes it.
pub(super) fn describe(info: &DeviceInfo, budget: Option<u64>) -> channel::Device {
    channel::Device {
        uuid: info.uuid,
        kind: info.kind,
        ordinal: info.ordinal,
        total: info.total,
        granularity: info.granularity,
        budget: budget.unwrap_or(0),
        name: info.name.clone(),
    }
}

impl Heap {
    /// The channel's string of a tag.
    #[inline]
    pub(super) fn string_of(&mut self, tag: Tag) -> StringId {
        match self.tags.get(tag.0 as usize) {
            Some(Some(id)) => *id,
            _ => self.intern(tag),
        }
    }

    /// The same, if it was asked for before.
    #[inline(always)]
    pub(super) fn known_string(&self, tag: Tag) -> Option<StringId> {
        self.tags.get(tag.0 as usize).copied().flatten()
    }

    #[cold]
    fn intern(&mut self, tag: Tag) -> StringId {
        let its = self.labels.tag(&mut self.outlet, &tag::name(tag));
        // A history tells names apart that a full channel does not.
        let id = match self.outlet.records() {
            true => its,
            false => its.or_else(|| self.labels.other_tag(&mut self.outlet)),
        };
        // Then, and without a channel, a tag has a number that no channel gives: its name is not taken for another's here.
        let id = id.unwrap_or(StringId(UNPUBLISHED | tag.0));
        let at = tag.0 as usize;
        if self.tags.len() <= at {
            self.tags.resize(at + 1, None);
        }
        self.tags[at] = Some(id);
        id
    }

    /// A history begins: tags that were told as others are to have numbers of their own.
    pub(super) fn tell_tags_apart(&mut self) {
        if let Some(other) = self.labels.other_tags() {
            let others = self.tags.iter_mut().filter(|id| **id == Some(other));
            others.for_each(|id| *id = None);
        }
    }

    /// Publishes managed memory that was allocated under a tag, whose string the range gets.
    pub(crate) fn managed_begin(&mut self, tag: Tag, range: &mut ManagedRange) -> ManagedSlot {
        range.tag = self.string_of(tag);
        match range.size {
            0 => ManagedSlot::default(),
            _ => self.outlet.managed_begin(range),
        }
    }

    pub(crate) fn managed_change(&mut self, slot: &ManagedSlot, range: &ManagedRange) {
        self.outlet.managed_change(slot, range);
    }

    pub(crate) fn managed_end(&mut self, slot: &ManagedSlot, range: &ManagedRange) {
        self.outlet.managed_end(slot, range);
    }

    pub(crate) fn managed_pages(&mut self, blocks: &[ManagedBlock], counters: &ManagedCounters) {
        self.outlet.managed_pages(blocks, counters);
    }

    /// Publishes a mark of the program's.
    pub(crate) fn mark(&mut self, name: &str) {
        if let Some(recorder) = self.outlet.recorder_mut() {
            recorder.mark(name);
        }
        if let Some(tag) = self.labels.mark(&mut self.outlet, name) {
            self.outlet.publish(&Event {
                kind: EventKind::Mark,
                device: DEVICE,
                tag,
                ..Event::default()
            });
            // Its event does not tell what it does to the figures: they follow, so that marks never leave a ring without any.
            self.tell_figures();
        }
    }

    /// A block was handed out as it was; `split`: which pool counted it as an inactive split.
    #[inline]
    pub(super) fn tell_allocated(&mut self, b: u32, split: Split) {
        if self.outlet.only_publishes() {
            self.tell_operation(EventKind::Alloc, BlockState::Allocated, b, split);
        } else if self.outlet.is_on() {
            self.tell_recorded(EventKind::Alloc, b, split);
        }
    }

    /// A block was freed and waits for other streams, with all its parts if it is stitched.
    pub(super) fn tell_waiting(&mut self, b: u32, parts: &[u32]) {
        let event = self.event_of(EventKind::Free, b);
        self.outlet.waiting(&event);
        match parts {
            [] => self.show(b),
            parts => self.tell_blocks(self.blocks[b].segment, parts.iter().copied()),
        }
        self.tell_figures();
    }

    /// An event about a block and the block itself (`state` is its state: a constant here saves a table there), in one go. Most
    /// requests change nothing else, and their event tells what they do to the figures.
    #[inline(always)]
    pub(super) fn tell_operation(&mut self, kind: EventKind, state: BlockState, b: u32, split: Split) {
        debug_assert_eq!(self.blocks[b].state, state);
        let block = &self.blocks[b];
        let operation = Operation {
            kind,
            slot: b,
            state,
            block: &Seen::of(block, &self.streams),
            next: some(block.next),
            split,
        };
        let due = self.outlet.operation(&operation);
        if due || self.ledger.rose() {
            self.tell_figures();
        }
    }

    /// An event about a block. Whether the figures have to follow.
    #[inline]
    pub(super) fn tell_block(&mut self, kind: EventKind, b: u32) -> bool {
        if !self.outlet.is_on() {
            return false;
        }
        let event = self.event_of(kind, b);
        if Heap::follows(self.blocks[b].class) {
            return self.outlet.change(&event);
        }
        self.outlet.event(&event);
        true
    }

    pub(super) fn event_of(&self, kind: EventKind, b: u32) -> Event {
        let block = &self.blocks[b];
        let (addr, size) = self
            .views
            .stitched(block.stitched)
            .map_or((block.addr, block.size), |whole| (whole.addr, whole.size));
        Event {
            kind,
            device: DEVICE,
            pool: block.pool,
            addr,
            size,
            requested: block.requested,
            stream: self.streams.name(block.stream).0,
            tag: block.tag,
            segment: block.segment,
            ..Event::default()
        }
    }

    /// A block was stitched for a request, at an address in a view. Whether the figures have to follow.
    pub(super) fn tell_stitched(&mut self, request: &Request, addr: u64, size: u64, home: u32) -> bool {
        let event = Event {
            kind: EventKind::Alloc,
            device: DEVICE,
            pool: request.pool,
            addr,
            size,
            requested: request.requested,
            stream: self.streams.name(request.stream).0,
            tag: request.tag,
            segment: home,
            ..Event::default()
        };
        // The history is told when the pieces are known.
        self.outlet.publish_change(&event)
    }

    /// Publishes the figures after a change if they are `due`, or if more changed than its event says.
    #[inline(always)]
    pub(super) fn tell_rest(&mut self, due: bool) {
        if due || self.ledger.more_changed() {
            self.tell_figures();
        }
    }

    /// Tells that a request was served once room was made.
    pub(super) fn tell_retry(&mut self, request: &Request) {
        self.outlet.event(&Event {
            segment: NIL,
            ..self.event_about(EventKind::Retry, request)
        });
    }

    /// Tells that a request failed; `free` is what the device has left.
    pub(super) fn tell_failure(&mut self, request: &Request, free: Option<u64>) {
        self.outlet.event(&Event {
            addr: free.unwrap_or(0),
            segment: self.arenas.label(request.arena).0,
            ..self.event_about(EventKind::OutOfMemory, request)
        });
    }

    /// Tells what would have helped best, if anything would.
    pub(super) fn tell_advice(&mut self, request: &Request, report: &OomReport) {
        let Some((words, bytes)) = report.helps.first().and_then(Help::told) else {
            return;
        };
        if let Some(tag) = self.labels.advice(&mut self.outlet, words) {
            self.outlet.publish(&Event {
                size: bytes,
                tag,
                ..self.event_about(EventKind::Advice, request)
            });
        }
    }

    /// An event about a request that found no block.
    fn event_about(&self, kind: EventKind, request: &Request) -> Event {
        Event {
            kind,
            device: DEVICE,
            pool: request.pool,
            size: request.size,
            requested: request.requested,
            stream: self.streams.name(request.stream).0,
            tag: request.tag,
            ..Event::default()
        }
    }

    /// An event about memory of a segment. `tag`: whose request it was for. A segment that grows has its first one's for ever.
    pub(super) fn tell_segment(&mut self, kind: EventKind, slot: u32, addr: u64, size: u64, tag: StringId) {
        let Some(segment) = self.segments.get(slot) else { return };
        self.outlet.event(&Event {
            kind,
            device: DEVICE,
            pool: segment.class.pool(),
            addr,
            size,
            stream: segment.taken_for.0,
            tag,
            segment: slot,
            ..Event::default()
        });
    }

    pub(super) fn tell_release(&mut self, size: u64) {
        let kind = EventKind::CacheRelease;
        let event = Event {
            kind,
            device: DEVICE,
            size,
            pool: PoolId::LARGE,
            segment: NIL,
            ..Event::default()
        };
        self.outlet.event(&event);
    }

    /// Publishes a block as it is now.
    #[inline]
    pub(super) fn show(&mut self, b: u32) {
        let recalled = self.streams.line(self.blocks[b].stream).is_retired();
        if let Some((lane, at)) = self.lent(b).filter(|_| !recalled) {
            let next = self.blocks[b].next;
            self.front.with(lane, |lane| lane.set_next(at, next));
        } else if self.outlet.is_on() {
            let block = &self.blocks[b];
            let seen = Seen::of(block, &self.streams);
            self.outlet.block(b, block.state, &seen, some(block.next));
        }
    }

    /// What the channel calls a segment.
    pub(super) fn kind_of(&self, segment: &Segment) -> SegmentKind {
        match self.sizes.mode {
            SegmentMode::Stitched if segment.class == Class::Chunked => SegmentKind::Stitched,
            _ => segment.kind,
        }
    }

    /// Publishes a segment and ends the bracket around its changes.
    #[inline]
    pub(super) fn show_segment(&mut self, slot: u32) {
        if !self.outlet.is_on() {
            return;
        }
        let segment = self.segments.get(slot).filter(|segment| segment.size > 0);
        let first = segment.and_then(|segment| some(segment.first));
        let seen = segment.map(|segment| channel::Segment {
            addr: segment.addr,
            size: segment.size,
            mapped: segment.mapped,
            device: DEVICE,
            pool: segment.class.pool(),
            kind: self.kind_of(segment),
            stream: self.streams.name(segment.stream).0,
            chunk: if segment.kind == SegmentKind::Virtual {
                self.sizes.granularity
            } else {
                0
            },
            time: segment.time,
            tag: segment.tag,
            pool_name: self.arenas.label(segment.arena),
        });
        self.outlet.segment_end(slot, seen.as_ref().map(|seen| (seen, first)));
    }

    #[inline(never)]
    pub(super) fn tell_figures(&mut self) {
        if self.outlet.is_on() {
            let (stats, touched) = self.ledger.changed();
            self.outlet.stats(stats, touched);
        }
    }
}
