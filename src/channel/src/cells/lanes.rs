//! The cells of a lane. They work like the publisher's, but are so small that they are always written whole.

use super::{EVENTS, deferrable_events, store};
use crate::format::words::LANE_CELL;
use crate::seqlock;
use crate::stats::{LaneFigures, LanePool};
use crate::word::Word;

/// Word of a lane's cell where its figures begin, after the sequence word and the number of events published before
/// them.
pub(super) const FIGURES: usize = EVENTS + 1;
const POOL_WORDS: usize = 10;
const _: () = assert!(FIGURES + 2 * POOL_WORDS <= LANE_CELL);

/// A lane's private state: which cell is next, and up to which event operations may defer their figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneCells {
    ticket: u64,
    until: u64,
    /// For how many events after a write of a cell operations may defer their figures.
    most: u64,
}

impl LaneCells {
    /// Makes the state for a lane with a ring of `ring` events.
    pub(crate) fn new(ring: usize) -> LaneCells {
        LaneCells {
            ticket: 0,
            until: 0,
            most: deferrable_events(ring),
        }
    }

    /// Whether an operation may defer its figures to its event, the last of `events`.
    #[inline(always)]
    pub(crate) fn defers(&self, events: u64) -> bool {
        events <= self.until
    }

    /// Publishes the figures after `events` events into one of the lane's two `cells`.
    #[inline]
    pub(crate) fn write<W: Word>(&mut self, cells: &[W; 2 * LANE_CELL], figures: &LaneFigures, events: u64) {
        let cell = &cells[(self.ticket & 1) as usize * LANE_CELL..][..LANE_CELL];
        seqlock::begin(cell, self.ticket);
        cell[EVENTS].put(events);
        store(&cell[FIGURES..][..POOL_WORDS], pool(&figures.small));
        store(&cell[FIGURES + POOL_WORDS..][..POOL_WORDS], pool(&figures.large));
        seqlock::end(cell, self.ticket);
        self.ticket += 1;
        self.until = events + self.most;
    }
}

#[inline(always)]
fn pool(pool: &LanePool) -> [u64; POOL_WORDS] {
    [
        pool.allocation.current,
        pool.allocation.allocated,
        pool.requested_bytes.current,
        pool.requested_bytes.allocated,
        pool.allocated_bytes.current,
        pool.allocated_bytes.allocated,
        pool.inactive_split.current,
        pool.inactive_split.allocated,
        pool.inactive_split_bytes.current,
        pool.inactive_split_bytes.allocated,
    ]
}
