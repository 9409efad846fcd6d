//! The stores that every writer makes: an event into a ring, a block into its slot.

use crate::codec::BLOCK_KIND;
use crate::layout::words::{BLOCK, EVENT};
use crate::layout::{GROUP, Layout, Section, lane, live};
use crate::seqlock;
use crate::word::Word;

/// Writers whose numbers of writes differ: the publisher, which is number 0, and the lanes.
pub(crate) const WRITERS: u64 = 64;
const _: () = assert!(crate::layout::LANES_MAX < WRITERS as usize);

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

/// The block table, and where one writer says which groups of it changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// The line it begins with.
    line: usize,
    pub(crate) count: usize,
    generations: usize,
}

impl Slots {
    /// As the publisher writes them.
    pub(crate) fn of_publisher(layout: &Layout) -> Slots {
        Slots {
            line: layout.blocks.start / LINE,
            count: layout.blocks.count,
            generations: layout.generations.start,
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
const LINE: usize = 8;
const _: () = assert!(EVENT == LINE && BLOCK == LINE);

/// A line of words, if it is there. Sections begin with one.
#[inline(always)]
fn line<W>(words: &[W], at: usize) -> Option<&[W; LINE]> {
    words.as_chunks().0.get(at)
}

#[inline(always)]
fn event_of<'a, W>(words: &'a [W], ring: &Ring, index: u64) -> Option<&'a [W; EVENT]> {
    line(words, ring.line + (index as usize & ring.mask))
}

/// Events that a publisher has their place in the ring brought near before it needs it.
const AHEAD: u64 = 4;

/// Stores event number `index`. Returns how many were stored: none if the memory is gone.
#[inline(always)]
pub(crate) fn event<W: Word>(words: &[W], ring: &Ring, index: u64, data: [u64; EVENT - 1]) -> u64 {
    let Some(record) = event_of(words, ring, index) else {
        return 0;
    };
    // The index is the ticket: a reader knows which sequence number event `i` must carry.
    seqlock::begin(record, index);
    for (word, value) in record[1..].iter().zip(data) {
        word.put(value);
    }
    seqlock::end(record, index);
    // Everything that the count counts is seen by whoever sees the count.
    W::release_fence();
    words[ring.count].put(index + 1);
    // A ring is always written where it was not touched for longest, and the next lock waits until these stores are done.
    if let Some(record) = event_of(words, ring, index + AHEAD) {
        record[0].prefetch();
    }
    1
}

/// Stores a block slot that the table has, and its group's generation.
#[inline(always)]
pub(crate) fn block<W: Word>(words: &[W], slots: &Slots, ticket: u64, slot: usize, data: [u64; BLOCK - 1]) {
    let Some(record) = line(words, slots.line + slot) else {
        return;
    };
    seqlock::begin(record, ticket);
    for (word, value) in record[1..].iter().zip(data) {
        word.put(value);
    }
    seqlock::end(record, ticket);
    // After the record: who sees this generation also sees the record, or at least that it is being written.
    words[slots.generations + slot / GROUP].put(ticket);
}

/// Empties a block slot, of which a reader asks its kind before anything else. False if the table has no such slot.
#[inline(always)]
pub(crate) fn empty_block<W: Word>(words: &[W], slots: &Slots, ticket: u64, slot: usize) -> bool {
    if slot >= slots.count {
        return false;
    }
    if let Some(record) = line(words, slots.line + slot) {
        seqlock::begin(record, ticket);
        record[1 + BLOCK_KIND].put(0);
        seqlock::end(record, ticket);
        words[slots.generations + slot / GROUP].put(ticket);
    }
    true
}
