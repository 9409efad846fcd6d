//! What is published about one stream of a device by somebody other than the publisher, and at the same time.
//!
//! A lane has its own events, figures and generation words, on cache lines of its own. What both write are the slots of the blocks
//! that it was lent: whoever writes one holds a lock that orders it after who wrote it last, and numbers its writes differently, so
//! that readers are not misled by the same number twice. Between lanes nothing is ordered.

use crate::cells::LaneCells;
use crate::codec::What;
use crate::facts::{Facts, Unheld};
use crate::format::lane;
use crate::format::words::LANE_CELL;
use crate::layout::Layout;
use crate::map::Map;
use crate::operation::{Operation, Told};
use crate::put::{self, Ring, Slots, WRITERS};
use crate::record::BlockState;
use crate::stamp::Stamp;
use crate::stats::LaneFigures;
use crate::word::{Word, Words};

/// The writing half of a lane over any words.
#[derive(Debug)]
pub(crate) struct LaneWriter<M> {
    memory: M,
    ring: Ring,
    slots: Slots,
    /// Where its record begins.
    record: usize,
    device: u8,
    /// What its numbers of writes begin with: no other writer's are the same, modulo [`WRITERS`].
    first: u64,
    /// Every write of a slot that is none of an event's.
    others: u64,
    events: u64,
    /// The publisher's number of the last meeting.
    order: u32,
    cells: LaneCells,
    open: bool,
}

impl<M: Words> LaneWriter<M> {
    /// Opens number `index` of the lanes that the layout has.
    pub(crate) fn open(memory: M, layout: &Layout, index: usize, device: u8, stream: u64) -> LaneWriter<M> {
        let lane = LaneWriter {
            memory,
            ring: Ring::of_lane(layout, index),
            slots: Slots::of_lane(layout, index),
            record: layout.lanes.record(index).start,
            device,
            first: 1 + index as u64,
            others: 0,
            events: 0,
            order: 0,
            cells: LaneCells::new(layout.lane_ring(index).count),
            open: true,
        };
        lane.of_stream(stream);
        lane.state(lane::OPEN);
        lane
    }

    /// What comes now is about this stream. Every event and block says itself which it is about.
    pub(crate) fn of_stream(&self, stream: u64) {
        if let Some(word) = self.words().get(self.record + lane::STREAM) {
            word.put(stream);
        }
    }

    fn state(&self, state: u64) {
        if let Some(word) = self.words().get(self.record + lane::STATE) {
            word.put(state | u64::from(self.device) << 8);
        }
    }

    fn words(&self) -> &[M::W] {
        here(&self.memory, self.open).unwrap_or_default()
    }

    /// The number of the write of a slot that is just made.
    #[inline(always)]
    fn ticket(&self) -> u64 {
        (self.events + self.others) * WRITERS + self.first
    }

    /// The publisher's order from now on.
    pub(crate) fn meet(&mut self, order: u32) {
        self.order = order;
    }

    /// As [`Writer::operation`](crate::writer::Writer::operation). `KNOWN`: the block is in its slot already, and not all of that is
    /// stored again.
    #[inline(always)]
    pub(crate) fn operation<const KNOWN: bool>(&mut self, time: u64, operation: &Operation<'_, impl Facts>) -> Told {
        let Operation {
            kind,
            slot,
            state,
            block,
            next,
            split,
        } = *operation;
        let Some(words) = here(&self.memory, self.open) else {
            return Told {
                stored: true,
                figures_due: false,
            };
        };
        let what = What {
            time,
            kind,
            split,
            follows: true,
            order: self.order,
        };
        put::event(words, &self.ring, &mut self.events, what, block);
        let record = (slot as usize, time, state, next);
        let (slots, ticket) = (&self.slots, self.ticket());
        let stored = match state {
            BlockState::Free | BlockState::Quick => {
                put::block::<KNOWN, _>(words, slots, ticket, record, &Unheld(block))
            }
            _ => put::block::<KNOWN, _>(words, slots, ticket, record, block),
        };
        Told {
            stored,
            figures_due: !self.cells.leaves(self.events),
        }
    }

    /// Rewrites a block slot. Returns false if there is no such slot.
    #[inline(always)]
    pub(crate) fn block(
        &mut self,
        slot: u32,
        time: u64,
        state: BlockState,
        block: &impl Facts,
        next: Option<u32>,
    ) -> bool {
        self.others += 1;
        let ticket = self.ticket();
        here(&self.memory, self.open).is_none_or(|words| {
            let slot = slot as usize;
            put::block::<false, _>(words, &self.slots, ticket, (slot, time, state, next), block)
        })
    }

    /// Publishes the lane's figures.
    #[inline]
    pub(crate) fn figures(&mut self, figures: &LaneFigures) {
        let words = if self.open { self.memory.words() } else { &[] };
        let cells = put::record::<_, { 2 * LANE_CELL }>(words, self.record + lane::CELLS);
        if let Some(cells) = cells {
            self.cells.write(cells, figures, self.events);
        }
    }

    /// Says that nothing more comes, and sees to it.
    pub(crate) fn close(&mut self) {
        self.state(lane::CLOSED);
        self.open = false;
    }
}

/// A lane's memory; `None` once it is closed, or in a forked child.
#[inline(always)]
fn here<M: Words>(memory: &M, open: bool) -> Option<&[M::W]> {
    if open { memory.here() } else { None }
}

/// The events, figures and block states of one stream, published beside the [`Publisher`](crate::Publisher) by whoever holds this,
/// also at the same time.
///
/// It keeps the channel's memory, but not its sign of life. In a forked child every method does nothing.
#[derive(Debug)]
pub struct Lane {
    writer: LaneWriter<Map>,
    stamp: Stamp,
}

impl Lane {
    pub(crate) fn new(writer: LaneWriter<Map>, stamp: Stamp) -> Lane {
        Lane { writer, stamp }
    }

    /// Both ends of [`Publisher::meet`](crate::Publisher::meet).
    pub(crate) fn parts(&mut self) -> (&mut LaneWriter<Map>, &mut Stamp) {
        (&mut self.writer, &mut self.stamp)
    }

    /// [`Publisher::operation`](crate::Publisher::operation), of a block that this lane was lent. The figures due are the lane's.
    #[inline(always)]
    pub fn operation(&mut self, operation: &Operation<'_, impl Facts>) -> Told {
        let time = self.stamp.operation(operation.block.size(), self.writer.events);
        self.writer.operation::<false>(time, operation)
    }

    /// The same of a block whose slot says already where it is, its size and its stream: only who holds it is stored anew.
    #[inline(always)]
    pub fn operation_again(&mut self, operation: &Operation<'_, impl Facts>) -> Told {
        let time = self.stamp.operation(operation.block.size(), self.writer.events);
        self.writer.operation::<true>(time, operation)
    }

    /// Rewrites a slot without an event, because that of its neighbour changed. Only between
    /// [`Publisher::segment_begin`](crate::Publisher::segment_begin) and the end of that change. Returns false if the table has no such
    /// slot.
    pub fn block(&mut self, slot: u32, state: BlockState, block: &impl Facts, next: Option<u32>) -> bool {
        self.writer.block(slot, self.stamp.now(), state, block, next)
    }

    /// Publishes the lane's figures: when [`Told::figures_due`] says so.
    #[inline]
    pub fn figures(&mut self, figures: &LaneFigures) {
        self.writer.figures(figures);
    }

    /// Goes on about another stream: the one before has ended. What was counted for that stays counted here.
    pub fn continue_with(&mut self, stream: u64) {
        self.writer.of_stream(stream);
    }

    /// Ends the lane: its last figures stay, and nothing more is published on it.
    pub fn close(&mut self) {
        self.writer.close();
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.close();
    }
}
