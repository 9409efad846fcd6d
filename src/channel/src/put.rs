//! The stores that every writer makes: an event into a ring, a block into its slot.

use crate::codec::{self, BLOCK_KIND, EventMeta, NO_SLOT};
use crate::facts::Facts;
use crate::format::words::{BLOCK, EVENT, SEGMENT};
use crate::format::{GROUP, Section, lane, live};
use crate::layout::Layout;
use crate::record::BlockState;
use crate::seqlock;
use crate::word::Word;

/// Number of writers with distinct tickets modulo this number: the publisher, which is number 0, and the lanes.
pub(crate) const WRITERS: u64 = 64;
const _: () = assert!(crate::format::LANES_MAX < WRITERS as usize);

/// An event ring, and the word that counts its events. It has one writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// Its first cache line.
    line: usize,
    mask: usize,
    count: usize,
}

impl Ring {
    /// Returns the ring of the publisher.
    pub(crate) fn of_publisher(layout: &Layout) -> Ring {
        Ring::new(layout.events, layout.live.start + live::EVENTS)
    }

    /// Returns the ring of a lane. Callers keep `lane` below the number of lanes.
    pub(crate) fn of_lane(layout: &Layout, lane: usize) -> Ring {
        Ring::new(layout.lane_ring(lane), layout.lanes.record(lane).start + lane::EVENTS)
    }

    fn new(ring: Section, count: usize) -> Ring {
        Ring {
            line: ring.start / LINE,
            mask: ring.count - 1,
            count,
        }
    }
}

/// The block table, the generation words of one writer, and the segment table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// Its first cache line.
    line: usize,
    pub(crate) count: usize,
    generations: usize,
    /// First cache line of the segment table.
    segments: usize,
}

impl Slots {
    /// Returns the tables with the generation words of the publisher.
    pub(crate) fn of_publisher(layout: &Layout) -> Slots {
        debug_assert_eq!(layout.blocks.record(layout.blocks.count).start, layout.len);
        Slots {
            line: layout.blocks.start / LINE,
            count: layout.blocks.count,
            generations: layout.generations.start,
            segments: layout.segments.start / LINE,
        }
    }

    /// Returns the tables with the generation words of a lane. Callers keep `lane` below the number of lanes.
    pub(crate) fn of_lane(layout: &Layout, lane: usize) -> Slots {
        Slots {
            generations: layout.lane_generations.record(lane).start,
            ..Slots::of_publisher(layout)
        }
    }
}

/// Returns `N` words from `start` on, if they exist.
#[inline(always)]
pub(crate) fn record<W, const N: usize>(words: &[W], start: usize) -> Option<&[W; N]> {
    words.get(start..).and_then(|words| words.first_chunk())
}

/// Words of a cache line, which are those of an event and of a block.
pub(crate) const LINE: usize = 8;
const _: () = assert!(EVENT == LINE && BLOCK == LINE && SEGMENT.is_multiple_of(LINE));

/// Returns a cache line of words, if it exists. Sections begin at a cache line.
#[inline(always)]
fn line<W>(words: &[W], at: usize) -> Option<&[W; LINE]> {
    words.as_chunks().0.get(at)
}

/// How many events ahead a publisher prefetches the event ring.
const AHEAD: usize = 4;

/// Stores the event that follows `events` others, and counts it.
#[inline(always)]
pub(crate) fn event<W: Word>(words: &[W], ring: &Ring, events: &mut u64, what: EventMeta, about: &impl Facts) {
    let index = *events;
    let Some(record) = line(words, ring.line + (index as usize & ring.mask)) else {
        return;
    };
    *events += 1;
    // The index is the ticket: a reader knows which sequence number event `i` must have.
    seqlock::begin(record, index);
    codec::put_event(record, what, about);
    seqlock::end(record, index);
    // A reader that sees the count sees every counted event.
    W::release_fence();
    words[ring.count].put(index + 1);
    // A ring is always written at its oldest entry, which is in no cache, and the next lock operation waits for these
    // stores.
    record[0].prefetch(AHEAD * LINE);
}

/// Stores a block slot, and its group's generation. With `KNOWN` the block is already in the slot, and only the words
/// about its holder are stored. Returns false if the table has no such slot. The table is at the end of the file, so
/// such a slot is out of bounds.
#[inline(always)]
pub(crate) fn block<const KNOWN: bool, W: Word>(
    words: &[W],
    slots: &Slots,
    ticket: u64,
    (slot, time, state, next): (usize, u64, BlockState, Option<u32>),
    block: &impl Facts,
) -> bool {
    let Some(record) = begin(words, slots, ticket, slot) else {
        return false;
    };
    let what = (time, state, next.unwrap_or(NO_SLOT));
    if KNOWN {
        codec::put_holder(record, what, block);
    } else {
        codec::put_block(record, what, block);
    }
    end(words, slots, ticket, slot, record);
    true
}

/// Begins a write of a block slot. Returns `None` if the table has no such slot.
#[inline(always)]
fn begin<'a, W: Word>(words: &'a [W], slots: &Slots, ticket: u64, slot: usize) -> Option<&'a [W; LINE]> {
    let record = line(words, slots.line + slot)?;
    seqlock::begin(record, ticket);
    Some(record)
}

#[inline(always)]
fn end<W: Word>(words: &[W], slots: &Slots, ticket: u64, slot: usize, record: &[W; LINE]) {
    seqlock::end(record, ticket);
    // Stored after the record: a reader that sees this generation also sees the record, or that it is being written.
    words[slots.generations + slot / GROUP].put(ticket);
}

/// Returns the cache line with the sequence word of a segment, if the table has it.
#[inline(always)]
pub(crate) fn bracket<'a, W>(words: &'a [W], slots: &Slots, segment: usize) -> Option<&'a [W; LINE]> {
    line(words, slots.segments + segment * (SEGMENT / LINE))
}

/// Empties a block slot by clearing its kind, which readers check first. Returns false if the table has no such slot.
#[inline(always)]
pub(crate) fn empty_block<W: Word>(words: &[W], slots: &Slots, ticket: u64, slot: usize) -> bool {
    let Some(record) = begin(words, slots, ticket, slot) else {
        return false;
    };
    record[1 + BLOCK_KIND].put(0);
    end(words, slots, ticket, slot, record);
    true
}
