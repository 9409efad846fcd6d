//! Lanes: each publishes about one stream of a device, concurrently with the publisher.
//!
//! A lane has its own events, figures and generation words, on its own cache lines. Lane and publisher both write the
//! slots of the blocks lent to the lane. A writer of such a slot holds a lock that orders it after the previous writer.
//! Each writer has its own ticket numbers, so that a reader never sees a number twice. Lanes are not ordered among each
//! other.

use crate::cells::LaneCells;
use crate::clock::Clock;
use crate::codec::EventMeta;
use crate::facts::{Facts, Unheld};
use crate::format::lane;
use crate::format::words::LANE_CELL;
use crate::layout::Layout;
use crate::map::Map;
use crate::operation::{Operation, Published};
use crate::put::{self, Ring, Slots, WRITERS};
use crate::record::BlockState;
use crate::stats::LaneFigures;
use crate::word::{Word, Words};

/// The writer of a lane, generic over the kind of memory.
#[derive(Debug)]
pub(crate) struct LaneWriter<M> {
    memory: M,
    ring: Ring,
    slots: Slots,
    /// First word of the lane's record.
    record: usize,
    device: u8,
    /// First ticket of the lane. No other writer's tickets are the same modulo [`WRITERS`].
    first: u64,
    /// Number of writes of a slot without an event.
    others: u64,
    events: u64,
    /// The publisher's number of the last [meeting](crate::Publisher::meet).
    order: u32,
    cells: LaneCells,
    open: bool,
}

impl<M: Words> LaneWriter<M> {
    /// Opens lane number `index` of the layout.
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

    /// Sets the stream of the lane's record. Every event and block names its own stream too.
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

    /// Returns the ticket of the next write of a slot.
    #[inline(always)]
    fn ticket(&self) -> u64 {
        (self.events + self.others) * WRITERS + self.first
    }

    /// Takes over the publisher's number of the meeting.
    pub(crate) fn meet(&mut self, order: u32) {
        self.order = order;
    }

    /// Publishes an operation like [`Writer::operation`](crate::writer::Writer::operation). With `KNOWN` the block is
    /// already in its slot, and only the words that change are stored.
    #[inline(always)]
    pub(crate) fn operation<const KNOWN: bool>(
        &mut self,
        time: u64,
        operation: &Operation<'_, impl Facts>,
    ) -> Published {
        let Operation {
            kind,
            slot,
            state,
            block,
            next,
            split,
        } = *operation;
        let Some(words) = here(&self.memory, self.open) else {
            return Published {
                stored: true,
                figures_due: false,
            };
        };
        let what = EventMeta {
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
        Published {
            stored,
            figures_due: !self.cells.defers(self.events),
        }
    }

    /// Rewrites a block slot. Returns false if the table has no such slot.
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

    /// Marks the lane as closed. Later calls do nothing.
    pub(crate) fn close(&mut self) {
        self.state(lane::CLOSED);
        self.open = false;
    }
}

/// Returns a lane's memory; `None` once the lane is closed, or in a forked child.
#[inline(always)]
fn here<M: Words>(memory: &M, open: bool) -> Option<&[M::W]> {
    if open { memory.here() } else { None }
}

/// Publishes the events, figures and block states of one stream, concurrently with the [`Publisher`](crate::Publisher).
///
/// It keeps the channel's memory mapped, but does not hold the lock that marks the publisher as alive. In a forked
/// child every method does nothing.
#[derive(Debug)]
pub struct Lane {
    writer: LaneWriter<Map>,
    clock: Clock,
}

impl Lane {
    pub(crate) fn new(writer: LaneWriter<Map>, clock: Clock) -> Lane {
        Lane { writer, clock }
    }

    /// Returns the parts that [`Publisher::meet`](crate::Publisher::meet) needs.
    pub(crate) fn parts(&mut self) -> (&mut LaneWriter<Map>, &mut Clock) {
        (&mut self.writer, &mut self.clock)
    }

    /// Publishes an operation like [`Publisher::operation`](crate::Publisher::operation), on a block that this lane was
    /// lent. The figures that may be due are the lane's.
    #[inline(always)]
    pub fn operation(&mut self, operation: &Operation<'_, impl Facts>) -> Published {
        let time = self.clock.operation(operation.block.size(), self.writer.events);
        self.writer.operation::<false>(time, operation)
    }

    /// Publishes an operation like [`Lane::operation`] on a block whose slot already has its address, size and stream:
    /// only its state, tag and requested size are stored.
    #[inline(always)]
    pub fn operation_again(&mut self, operation: &Operation<'_, impl Facts>) -> Published {
        let time = self.clock.operation(operation.block.size(), self.writer.events);
        self.writer.operation::<true>(time, operation)
    }

    /// Rewrites a slot without an event, because its neighbour changed. May be called only between
    /// [`Publisher::segment_begin`](crate::Publisher::segment_begin) and the end of that change. Returns false if the
    /// table has no such slot.
    pub fn block(&mut self, slot: u32, state: BlockState, block: &impl Facts, next: Option<u32>) -> bool {
        self.writer.block(slot, self.clock.now(), state, block, next)
    }

    /// Publishes the lane's figures. To be called when [`Published::figures_due`] is set.
    #[inline]
    pub fn figures(&mut self, figures: &LaneFigures) {
        self.writer.figures(figures);
    }

    /// Continues with another stream after the previous one has ended. The counts of the previous stream stay in the
    /// lane's figures.
    pub fn continue_with(&mut self, stream: u64) {
        self.writer.of_stream(stream);
    }

    /// Closes the lane: its last figures stay, and nothing more is published on it.
    pub fn close(&mut self) {
        self.writer.close();
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.close();
    }
}
