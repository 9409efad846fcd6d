//! One lane: what it hands out and takes back, and what the heap does with it.

use gpumem_channel as channel;
use gpumem_channel::{BlockState, EventKind, LaneFigures, Split, StringId, Unheld};

use super::quick::{Lists, Noted};
use super::seen::Seen;
use super::told::{operation, publish};
use super::wish::Kept;
use super::{Held, Lent, Record, State};
use crate::counts::Counts;
use crate::heap::{Grant, some};
use crate::size::half;
use crate::stream::Stream;
use crate::tag::Tag;

/// A tag whose number in the channel this lane does not know.
const UNKNOWN: StringId = StringId(u32::MAX);

/// The lane of one stream.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Whether it takes blocks back. Else it has none to hand out either, once the heap has taken what there were.
    pub(crate) open: bool,
    pub(super) number: u8,
    pub(super) stream: Stream,
    /// The small blocks that are set aside, and the large ones.
    pub(super) lists: &'static [Lists; 2],
    noted: [Noted; 2],
    records: Vec<Record>,
    vacant: Vec<u32>,
    pub(crate) counts: Counts,
    pub(super) kept: Kept,
    /// The channel's numbers of tags.
    tags: Vec<StringId>,
    /// What is set aside now carries this: no event that was recorded before tells that its stream is done with it.
    pub(crate) clock: u64,
    /// Buffers handed out here less those given back here.
    pub(crate) buffers: i64,
    /// Blocks that were given back, as far as the heap knows.
    frees: u64,
    pub(crate) outlet: Option<channel::Lane>,
}

impl Lane {
    pub(super) fn new(number: u8, lists: &'static [Lists; 2], stream: Stream, outlet: Option<channel::Lane>) -> Lane {
        Lane {
            open: true,
            number,
            stream,
            lists,
            noted: Default::default(),
            records: Vec::new(),
            vacant: Vec::new(),
            counts: Counts::default(),
            kept: Kept::Nothing,
            tags: Vec::new(),
            clock: u64::MAX,
            buffers: 0,
            frees: 0,
            outlet,
        }
    }

    /// Teaches it the channel's number of a tag.
    pub(crate) fn learn(&mut self, tag: Tag, string: StringId) {
        let at = tag.0 as usize;
        if self.tags.len() <= at {
            self.tags.resize(at + 1, UNKNOWN);
        }
        self.tags[at] = string;
    }

    /// Hands out a block that is set aside for exactly the size that the request comes to. `None` is no error: the heap knows more.
    #[inline(always)]
    pub(super) fn allocate(&mut self, lists: &Lists, requested: u64, size: u64, tag: Tag) -> Option<Lent> {
        let pool = half(size);
        let at = lists.first(size)?;
        let tag = *self.tags.get(tag.0 as usize)?;
        let record = self.records.get_mut(at as usize)?;
        if tag == UNKNOWN {
            return None;
        }
        // Nobody asks for that of a block that is set aside: said now, it need not be kept for later.
        record.tag = tag;
        if !self.counts.allocate(pool, requested, size) {
            return None;
        }
        if record.split.is_one() {
            self.counts.subtract(pool, [0, 0, 0, 1, size]);
        }
        lists.take(size, record.link);
        record.state = State::Held;
        record.requested = requested;
        record.served = true;
        let mut due = false;
        if let Some(outlet) = &mut self.outlet {
            due = publish::<true>(outlet, self.stream, record);
        }
        let lent = Lent {
            addr: record.addr,
            held: Held::by_lane(self.number, at),
        };
        if due {
            self.tell_figures();
        }
        Some(lent)
    }

    /// Takes back a block that the program held. Whether it did; else it is for the heap to do.
    #[inline(always)]
    pub(super) fn free(&mut self, lists: &[Lists; 2], at: u32) -> bool {
        let Some(record) = self.records.get_mut(at as usize) else {
            return false;
        };
        let (size, pool) = (record.size, half(record.size));
        if !self.open || record.state != State::Held || !lists[pool].takes(size) {
            return false;
        }
        if record.split.is_one() && !self.counts.add_split(pool, size) {
            return false;
        }
        self.counts.subtract(pool, [1, record.requested, size, 0, 0]);
        record.link = self.noted[pool].put(&lists[pool], size, at);
        record.state = State::Aside;
        record.freed_at = self.clock;
        if let Some(outlet) = &mut self.outlet
            && publish::<false>(outlet, self.stream, record)
        {
            self.tell_figures();
        }
        true
    }

    /// The record of a block that the program holds, if it is to be set aside here once it is given back.
    pub(crate) fn wants(&self, at: u32) -> Option<&Record> {
        let record = self.records.get(at as usize)?;
        let wanted = self.open && record.state == State::Held && self.lists[half(record.size)].takes(record.size);
        wanted.then_some(record)
    }

    fn grant(&self, at: u32, record: &Record) -> Grant {
        Grant {
            block: record.block,
            addr: record.addr,
            size: record.size,
            held: Held::by_lane(self.number, at),
        }
    }

    /// Publishes what happened to a block. What became of an inactive split the heap tells.
    fn tell(&mut self, kind: EventKind, state: BlockState, record: &Record) {
        let block = Seen {
            record,
            stream: self.stream,
        };
        if let Some(outlet) = &mut self.outlet
            && outlet.operation(&operation(kind, state, &block, Split::NO)).figures_due
        {
            self.tell_figures();
        }
    }

    /// Publishes what this lane counts.
    #[inline(never)]
    pub(crate) fn tell_figures(&mut self) {
        if let Some(outlet) = &mut self.outlet {
            outlet.figures(&LaneFigures {
                small: self.counts.as_lane(0),
                large: self.counts.as_lane(1),
            });
        }
    }

    // What the heap does, which holds its own lock, too

    /// [`allocate`](Lane::allocate) for a request that the heap has seen to.
    pub(crate) fn allocate_known(&mut self, requested: u64, size: u64, tag: Tag) -> Option<Grant> {
        let lent = self.allocate(&self.lists[half(size)], requested, size, tag)?;
        let (_, at) = lent.held.lane()?;
        let record = self.records.get(at as usize)?;
        Some(self.grant(at, record))
    }

    /// [`free`](Lane::free) for the heap.
    pub(crate) fn set_aside(&mut self, at: u32) -> bool {
        self.free(self.lists, at)
    }

    /// Whether a large block of a size in between may be set aside.
    pub(crate) fn look_between(&self, from: u64, to: u64) -> bool {
        self.noted[1].look_between(&self.lists[1], from, to)
    }

    /// Takes a block that the program was just handed, if there is room to count it.
    pub(crate) fn adopt(&mut self, record: Record) -> Option<Grant> {
        if !self.counts.allocate(half(record.size), record.requested, record.size) {
            return None;
        }
        let at = match self.vacant.pop() {
            Some(at) => {
                self.records[at as usize] = record;
                at
            }
            None => {
                self.records.push(record);
                self.records.len() as u32 - 1
            }
        };
        self.tell(EventKind::Alloc, BlockState::Allocated, &record);
        Some(self.grant(at, &record))
    }

    /// Tells the channel that the slot behind a lent block is another one.
    pub(crate) fn set_next(&mut self, at: u32, next: u32) {
        let Some(record) = self.records.get_mut(at as usize) else {
            return;
        };
        record.next = next;
        let Some(outlet) = &mut self.outlet else {
            return;
        };
        let (slot, next, stream) = (record.block, some(next), self.stream);
        let block = Seen { record, stream };
        match record.state {
            State::Aside => outlet.block(slot, BlockState::Quick, &Unheld(&block), next),
            _ => outlet.block(slot, BlockState::Allocated, &block, next),
        };
    }

    pub(crate) fn record(&self, at: u32) -> Option<&Record> {
        self.records
            .get(at as usize)
            .filter(|record| record.state != State::Vacant)
    }

    /// The program gives a block back that the lane does not want: an event says so, and the block is the heap's again.
    pub(crate) fn give_up(&mut self, at: u32) -> Option<Record> {
        let record = self.remove(at)?;
        self.counts
            .subtract(half(record.size), [1, record.requested, record.size, 0, 0]);
        self.tell(EventKind::Free, BlockState::Quick, &record);
        Some(record)
    }

    /// The heap counts a block from now on that the program goes on holding; its number stays taken until it is given back.
    pub(crate) fn recall(&mut self, at: u32) -> Option<Record> {
        let record = self
            .records
            .get_mut(at as usize)
            .filter(|record| record.state == State::Held)?;
        record.state = State::Recalled;
        let record = *record;
        self.counts
            .hand_over(half(record.size), [1, record.requested, record.size, 0, 0]);
        self.tell_figures();
        Some(record)
    }

    /// Forgets a number.
    pub(crate) fn remove(&mut self, at: u32) -> Option<Record> {
        let record = self
            .records
            .get_mut(at as usize)
            .filter(|record| record.state != State::Vacant)?;
        let gone = *record;
        record.state = State::Vacant;
        self.vacant.push(at);
        Some(gone)
    }

    /// Takes any block that is set aside, of the small or of the large ones.
    pub(crate) fn take_aside(&mut self, half: usize) -> Option<Record> {
        let records = &self.records;
        let at = self.noted[half].take_any(&self.lists[half], |at| records[at as usize].link)?;
        let record = self.remove(at)?;
        if record.split.is_one() {
            self.counts.subtract(half, [0, 0, 0, 1, record.size]);
        }
        Some(record)
    }

    /// The heap's numbers of the blocks that the program holds and that are counted here.
    pub(crate) fn held(&self) -> Vec<u32> {
        let held = self.records.iter().filter(|record| record.state == State::Held);
        held.map(|record| record.block).collect()
    }

    /// Blocks that were given back since the last call.
    pub(crate) fn frees_since(&mut self) -> u64 {
        let frees = self.counts.frees();
        frees - std::mem::replace(&mut self.frees, frees)
    }

    /// How many small blocks are set aside, and large ones.
    #[cfg(test)]
    pub(crate) fn count_aside(&self) -> [u32; 2] {
        self.lists.each_ref().map(Lists::count)
    }

    /// Numbers of the blocks that are set aside for a size.
    #[cfg(test)]
    pub(crate) fn aside(&self, size: u64) -> Vec<u32> {
        self.lists[half(size)].of_size(size, |at| self.records[at as usize].link)
    }
}
