//! What the heap lends to lanes and gets back from them.
//!
//! A lent block is a held one to the heap, which counts it nowhere and knows neither what was asked for nor whether the program has it
//! now. What is free in a lane comes back as soon as a request needs to look at all there is.

pub(super) mod again;
pub(super) mod classes;
pub(super) mod drain;
pub(super) mod trial;

use gpumem_channel::{DeviceStats, NO_STREAM, Split};

use super::allocate::Request;
use super::arena::COMMON;
use super::block::NIL;
use super::streams::{LaneOf, Line};
use super::{Grant, Heap};
use crate::lane::{Record, State};
use crate::size::{half, pool_of};

impl Line {
    /// Whether blocks of a size are worth lending to the stream's lane.
    #[inline(always)]
    pub(super) fn is_worth_lending(&self, half: usize, size: u64, frees: u64) -> bool {
        let comes = self.trials[half].is_open(frees) && self.again[half].comes(size);
        comes | self.goes_by_class(half)
    }

    /// Whether its small requests, or its large ones, go by size class.
    #[inline(always)]
    pub(super) fn goes_by_class(&self, half: usize) -> bool {
        (half == 0) & self.classes.is_on()
    }
}

impl Heap {
    /// The lane that a block is to be lent to when a request takes it: if the request's size is one that comes again.
    #[inline(always)]
    pub(super) fn lane_for(&mut self, b: u32, request: &Request, size: u64) -> Option<u8> {
        if size == request.size && self.is_worth_lending(request) && self.outlet.shows(b) {
            self.lane_of(request.stream)
        } else {
            None
        }
    }

    /// Whether a block of exactly the size of a request is lent when that takes it, if there is a lane.
    #[inline(always)]
    pub(super) fn is_worth_lending(&self, request: &Request) -> bool {
        let line = self.streams.line(request.stream);
        let common = request.arena == COMMON && request.class.pool() == request.pool;
        // What goes where it went before has to come here.
        !self.layouts.remembers(request.size)
            && common
            && line.is_worth_lending(half(request.size), request.size, self.frees)
    }

    /// The lane of a stream, opened if there is one to be had.
    pub(super) fn lane_of(&mut self, stream: u16) -> Option<u8> {
        match self.streams.line(stream).lane {
            LaneOf::Some(lane) => self.lends.then_some(lane),
            LaneOf::None | LaneOf::Left(_) => None,
            LaneOf::Unasked => self.open_lane(stream),
        }
    }

    #[cold]
    fn open_lane(&mut self, stream: u16) -> Option<u8> {
        if !self.lends {
            return None;
        }
        let name = self.streams.name(stream);
        // A lane rounds sizes by itself, and only the quick way: otherwise it would never hand out what it is lent.
        self.sizes.round_quick(1)?;
        let (front, outlet, clock) = (self.front, &mut self.outlet, self.frees + 1);
        // A handle that means no stream to a lane has none.
        let named = name.0 != NO_STREAM;
        let lane = named.then(|| front.open(name, clock, || outlet.lane(name))).flatten();
        self.streams.set_lane(stream, lane.map_or(LaneOf::None, LaneOf::Some));
        let came = lane.and_then(|lane| front.with(lane, |lane| [0, 1].map(|half| lane.counts.came(half)[0])));
        if let Some(before) = came {
            // What it did for another stream is not judged again.
            let line = self.streams.line_mut(stream);
            line.classes.begin(before[0]);
            for (trial, before) in line.trials.iter_mut().zip(before) {
                trial.begin(before);
            }
        }
        lane
    }

    /// A block that is set aside in the stream's lane, which did not hand it out by itself: it did not know the tag, or a peak rises.
    #[inline(never)]
    pub(super) fn allocate_from_lane(&mut self, request: &Request) -> Option<Grant> {
        let line = self.streams.line(request.stream);
        let LaneOf::Some(lane) = line.lane else { return None };
        if !self.lends || !self.front.has(lane, request.size) {
            return None;
        }
        self.make_room_for(lane, request, request.size);
        let tag = request.name;
        let grant = self.front.with(lane, |lane| {
            lane.learn(tag, request.tag);
            lane.allocate_known(request.requested, request.size, tag)
        });
        self.tell_rest(false);
        self.lending_cost(request.stream, half(request.size));
        grant?
    }

    /// Blocks of a stream's lane took the heap once more, which lending them should save.
    pub(super) fn lending_cost(&mut self, stream: u16, half: usize) {
        let (front, line) = (self.front, self.streams.line_mut(stream));
        let LaneOf::Some(lane) = line.lane else { return };
        if line.goes_by_class(half) {
            return;
        }
        let handed_out = || front.with(lane, |lane| lane.counts.came(half)[0]).unwrap_or(0);
        if line.trials[half].cost(handed_out, self.frees) {
            self.drain(stream, half);
        }
    }

    /// Lends a block that a request takes, cut to size, to its stream's lane. `rest` is what was cut off.
    #[inline(never)]
    pub(super) fn lend(&mut self, b: u32, rest: Option<u32>, lane: u8, request: &Request) -> Grant {
        let block = &self.blocks[b];
        let (size, segment) = (block.size, block.segment);
        let record = Record {
            split: match Heap::is_split(block) {
                true => Split::of(pool_of(size)),
                false => Split::NO,
            },
            next: block.next,
            ..Record::new(b, block.addr, size, segment, request.requested, request.tag)
        };
        // That it is no inactive split any more before it is counted as held; that there is a new peak only after it is.
        self.tell_rest(false);
        let bracket = rest.is_some();
        if bracket {
            self.outlet.segment_begin(segment);
        }
        let grant = self.hand_over(lane, record, request).or_else(|| {
            self.make_room_for(lane, request, size);
            self.hand_over(lane, record, request)
        });
        let grant = match grant {
            Some(grant) => {
                let block = &mut self.blocks[b];
                (block.requested, block.record) = (0, grant.held.lane().map_or(NIL, |(_, at)| at));
                grant
            }
            // Another thread took a block from the lane in between, and counted what this one was allowed to: the heap keeps it.
            None => {
                self.count_allocated(request, size);
                self.tell_allocated(b, Split::NO);
                Grant::by_heap(b, record.addr, size)
            }
        };
        if let Some(rest) = rest {
            self.shelve(rest);
            self.show(rest);
            self.outlet.segment_close(segment);
        }
        self.tell_rest(false);
        self.lending_cost(request.stream, half(size));
        grant
    }

    /// Makes a block a lane's, if that may count it.
    #[inline(always)]
    fn hand_over(&mut self, lane: u8, record: Record, request: &Request) -> Option<Grant> {
        let outlet = &mut self.outlet;
        let grant = self.front.with(lane, |lane| {
            outlet.meet(&mut lane.outlet);
            lane.learn(request.name, request.tag);
            lane.adopt(record)
        });
        grant.flatten()
    }

    /// The lane and the number of a lent block.
    pub(super) fn lent(&self, b: u32) -> Option<(u8, u32)> {
        let block = &self.blocks[b];
        match self.streams.line(block.stream).lane {
            LaneOf::Some(lane) | LaneOf::Left(lane) if block.record != NIL => Some((lane, block.record)),
            _ => None,
        }
    }

    /// The record of a block that is lent and that its lane counts.
    pub(super) fn record_of(&self, b: u32) -> Option<Record> {
        let (lane, at) = self.lent(b)?;
        let record = self.front.with(lane, |lane| lane.record(at).copied()).flatten()?;
        (record.state != State::Recalled).then_some(record)
    }

    /// The program gives a lent block back and the lane does not want it. Whether that is all; else the heap counts it.
    #[inline(never)]
    pub(super) fn free_lent(&mut self, b: u32) -> bool {
        let Some((lane, at)) = self.lent(b) else {
            return false;
        };
        let record = self.front.with(lane, |lane| lane.wants(at).copied()).flatten();
        if let Some(record) = record.filter(|record| record.split.is_one()) {
            self.make_room_for_split(lane, half(record.size), record.size);
        }
        let (outlet, frees) = (&mut self.outlet, &mut self.frees);
        let gone = self.front.with(lane, |lane| {
            let gone = match lane.record(at).map(|record| record.state) {
                Some(State::Held) if lane.set_aside(at) => None,
                Some(State::Held) => lane.give_up(at).map(|_| true),
                _ => lane.remove(at).map(|_| false),
            };
            *frees += lane.frees_since();
            // What becomes of the block now comes after its free.
            outlet.meet(&mut lane.outlet);
            gone
        });
        let Some(Some(counted)) = gone else {
            self.tell_rest(false);
            return true;
        };
        let block = &mut self.blocks[b];
        block.record = NIL;
        if counted {
            block.freed_at = self.frees;
            block.forget_owner();
            self.join_in(b);
            self.tell_rest(false);
        }
        counted
    }

    /// Counts a lent block that the program holds here from now on, if it is one.
    pub(super) fn recall(&mut self, b: u32) {
        let Some((lane, at)) = self.lent(b) else { return };
        let outlet = &mut self.outlet;
        let pool = self.blocks[b].pool;
        let record = self.front.with(lane, |lane| {
            outlet.meet(&mut lane.outlet);
            lane.recall(at)
        });
        if let Some(Some(record)) = record {
            let block = &mut self.blocks[b];
            (block.requested, block.tag) = (record.requested, record.tag);
            self.ledger.taken_over(pool, record.size, record.requested);
            self.tell_figures();
        }
    }

    /// Gets everything back from the lanes, and lends nothing from now on, or lends again.
    pub(crate) fn set_lending(&mut self, lends: bool) {
        if lends == self.lends {
            return;
        }
        self.lends = lends;
        self.front.each(|lane| lane.open = lends);
        if !lends {
            self.drain_all();
            for stream in self.streams.draining().to_vec() {
                if let LaneOf::Some(lane) = self.streams.line(stream).lane {
                    self.recall_all(lane);
                }
            }
        }
    }

    /// The same for all that are lent to a lane.
    pub(super) fn recall_all(&mut self, lane: u8) {
        for b in self.front.with(lane, |lane| lane.held()).unwrap_or_default() {
            self.recall(b);
        }
    }

    /// Bytes that the program asked for of blocks that lanes count, and bytes of these.
    pub(super) fn counted_by_lanes(&self) -> (u64, u64) {
        let (mut requested, mut allocated) = (0, 0);
        self.front.each(|lane| {
            for [_, asked, held, ..] in [0, 1].map(|pool| lane.counts.current(pool)) {
                requested += asked;
                allocated += held;
            }
        });
        (requested, allocated)
    }

    /// Adds what lanes count.
    pub(super) fn add_lanes(&self, stats: &mut DeviceStats) {
        self.front.each(|lane| lane.counts.add_to(stats));
    }

    /// The most that was ever requested at the same time, if `more` is.
    pub(super) fn requested_peak(&self, more: u64) -> u64 {
        self.requested(more).1
    }

    /// What is requested, if `more` is, and the most that ever was.
    fn requested(&self, more: u64) -> (u64, u64) {
        let more = self.counted_by_lanes().0 + more;
        (self.ledger.requested(more), self.ledger.requested_peak(more))
    }

    /// How much is [expected](crate::heap::expected) to be requested at the same time, if `more` is.
    pub(super) fn expected_peak(&mut self, more: u64) -> u64 {
        let (now, ever) = self.requested(more);
        self.expected.most(now, ever)
    }

    /// The same for the size of chunks.
    pub(super) fn expected_for_chunks(&mut self) -> u64 {
        let (now, ever) = self.requested(0);
        self.expected.most_for_chunks(now, ever)
    }

    /// The program gave its cache back.
    pub(super) fn cache_is_back(&mut self) {
        let (now, ever) = self.requested(0);
        self.expected.gave_back(now, ever);
    }

    /// Bytes that are allocated.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.ledger.allocated_bytes() + self.counted_by_lanes().1
    }

    /// An event is about to be recorded on a stream: it does not tell that work is done on what is set aside there from now on.
    pub(super) fn tick(&mut self, stream: u16) {
        if let LaneOf::Some(lane) = self.streams.line(stream).lane {
            let clock = self.frees + 1;
            self.front.with(lane, |lane| lane.clock = clock);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::Config;
    use crate::device::{Sim, SimConfig};
    use crate::heap::tests::heap_on;
    use crate::rounding::Divisions;
    use crate::stream::Stream;
    use crate::tag::Tag;

    /// Whether a size that comes again is lent to its stream's lane.
    fn lends(divisions: Divisions) -> bool {
        let config = Config {
            roundup_power2_divisions: divisions,
            ..Config::default()
        };
        let mut heap = heap_on(&Sim::new(SimConfig::default()), config);
        for _ in 0..4 {
            let grant = heap.allocate(4096, Stream(1), Tag(0)).unwrap();
            heap.free(grant.block);
            heap.check();
        }
        let lends =
            |stream| matches!(heap.streams.line(stream).lane, LaneOf::Some(lane) if heap.front.has_aside(lane, 0));
        heap.streams.real().any(lends)
    }

    #[test]
    fn only_what_a_lane_can_hand_out_is_lent() {
        assert!(lends(Divisions::default()));
        assert!(!lends(Divisions::all(4).unwrap()));
    }
}
