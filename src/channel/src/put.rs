//! The stores that every writer makes: an event into a ring, a block into its slot.

use crate::codec::{self, BLOCK_KIND, NO_SLOT, What};
use crate::facts::Facts;
use crate::format::words::{BLOCK, EVENT, SEGMENT};
use crate::format::{GROUP, Section, lane, live};
use crate::layout::Layout;
use crate::record::BlockState;
use crate::seqlock;
use crate::word::Word;

/// Writers whose numbers of writes differ: the publisher, which is number 0, and the lanes.
pub(crate) const WRITERS: u64 = 64;
const _: () = assert!(crate::format::LANES_MAX < WRITERS as usize);

/// An event ring, and the word that counts its events: what one writer appends to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// The line it begins with.
    line: usize,
    mask: usize,
    count: usize,
}

impl Ring {
    /// The publisher's.
    pub(crate) fn of_publisher(layout: &Layout) -> Ring {
        Ring::new(layout.events, layout.live.start + live::EVENTS)
    }

    /// A lane's. Callers keep `lane` below the number of lanes.
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

/// The block table, where one writer says which groups of it changed, and the segments that have the blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// The line it begins with.
    line: usize,
    pub(crate) count: usize,
    generations: usize,
    /// The line that the segments begin with.
    segments: usize,
}

impl Slots {
    /// As the publisher writes them.
    pub(crate) fn of_publisher(layout: &Layout) -> Slots {
        debug_assert_eq!(layout.blocks.record(layout.blocks.count).start, layout.len);
        Slots {
            line: layout.blocks.start / LINE,
            count: layout.blocks.count,
            generations: layout.generations.start,
            segments: layout.segments.start / LINE,
        }
    }

    /// As a lane writes them. Callers keep `lane` below the number of lanes.
    pub(crate) fn of_lane(layout: &Layout, lane: usize) -> Slots {
        Slots {
            generations: layout.lane_generations.record(lane).start,
            ..Slots::of_publisher(layout)
        }
    }
}

/// `N` words from `start` on, if they are there.
#[inline(always)]
pub(crate) fn record<W, const N: usize>(words: &[W], start: usize) -> Option<&[W; N]> {
    words.get(start..).and_then(|words| words.first_chunk())
}

/// Words of an event, and of a block: a line of the cache.
pub(crate) const LINE: usize = 8;
const _: () = assert!(EVENT == LINE && BLOCK == LINE && SEGMENT.is_multiple_of(LINE));

/// A line of words, if it is there. Sections begin with one.
#[inline(always)]
fn line<W>(words: &[W], at: usize) -> Option<&[W; LINE]> {
    words.as_chunks().0.get(at)
}

/// Events that a publisher has their place in the ring brought near before it needs it.
const AHEAD: usize = 4;

/// Stores the event that comes after so many `events`, and counts it.
#[inline(always)]
pub(crate) fn event<W: Word>(words: &[W], ring: &Ring, events: &mut u64, what: What, about: &impl Facts) {
    let index = *events;
    let Some(record) = line(words, ring.line + (index as usize & ring.mask)) else {
        return;
    };
    *events += 1;
    // The index is the ticket: a reader knows which sequence number event `i` must carry.
    seqlock::begin(record, index);
    codec::put_event(record, what, about);
    seqlock::end(record, index);
    // Everything that the count counts is seen by whoever sees the count.
    W::release_fence();
    words[ring.count].put(index + 1);
    // A ring is always written where it was not touched for longest, and the next lock waits until these stores are done.
    record[0].prefetch(AHEAD * LINE);
}

/// Stores a block slot, and its group's generation. `KNOWN`: the block is in it already, and only who holds it is stored. False if the
/// table has no such slot: behind it the file ends.
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

/// Begins to write a block slot, if the table has it.
#[inline(always)]
fn begin<'a, W: Word>(words: &'a [W], slots: &Slots, ticket: u64, slot: usize) -> Option<&'a [W; LINE]> {
    let record = line(words, slots.line + slot)?;
    seqlock::begin(record, ticket);
    Some(record)
}

#[inline(always)]
fn end<W: Word>(words: &[W], slots: &Slots, ticket: u64, slot: usize, record: &[W; LINE]) {
    seqlock::end(record, ticket);
    // After the record: who sees this generation also sees the record, or at least that it is being written.
    words[slots.generations + slot / GROUP].put(ticket);
}

/// The line with the sequence word of a segment that the table has.
#[inline(always)]
pub(crate) fn bracket<'a, W>(words: &'a [W], slots: &Slots, segment: usize) -> Option<&'a [W; LINE]> {
    line(words, slots.segments + segment * (SEGMENT / LINE))
}

/// Empties a block slot, of which a reader asks its kind before anything else. False if the table has no such slot.
#[inline(always)]
pub(crate) fn empty_block<W: Word>(words: &[W], slots: &Slots, ticket: u64, slot: usize) -> bool {
    let Some(record) = begin(words, slots, ticket, slot) else {
        return false;
    };
    record[1 + BLOCK_KIND].put(0);
    end(words, slots, ticket, slot, record);
    true
}
