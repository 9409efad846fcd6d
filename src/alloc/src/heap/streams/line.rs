//! What is known of one stream in one arena.

use std::collections::VecDeque;

use super::VACANT;
use crate::free::FreeIndex;
use crate::heap::arena::COMMON;
use crate::heap::ask::event::Event;
use crate::heap::corner::Backoff;
use crate::heap::lend::again::Again;
use crate::heap::lend::classes::Classes;
use crate::heap::lend::trial::Trial;
use crate::size::CLASSES;

/// One stream in one arena.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) arena: u16,
    /// The line of its arena's memory that is nobody's: itself, if it is that.
    pub(crate) any: u16,
    /// Its free blocks by class, but for those set aside.
    pub(crate) free: [FreeIndex; CLASSES],
    /// Its lane.
    pub(in crate::heap) lane: LaneOf,
    /// Stitched blocks set aside for the next request of their size, by the block of their first piece: views are worth keeping together.
    pub(in crate::heap) aside: Vec<(u64, u32)>,
    /// The sizes that are worth it.
    pub(in crate::heap) again: [Again; 2],
    pub(in crate::heap) trials: [Trial; 2],
    pub(in crate::heap) classes: Classes,
    /// Whether it helps small requests that what is set aside comes back.
    pub(in crate::heap) drains: Backoff,
    /// Blocks that wait for an event on this stream, oldest first. Without one, and while it is not recorded, they wait for the device.
    pub(in crate::heap) waiting: VecDeque<(Option<Event>, u32)>,
    /// Blocks freed up to this count of the heap's free counter may be used by other streams, and go back to the driver: no queued work
    /// uses them.
    pub(crate) safe: u64,
    /// The stream's own work is done that was queued until the free counter was this.
    done_to: u64,
    /// The number of its stream, where the driver says one: a handle may come back as that of another stream.
    pub(in crate::heap) id: Option<u64>,
    /// Whether its stream lives as long as the process, or until it is retired.
    pub(in crate::heap) lasts: bool,
    /// The last answer that was [heard](crate::heap::ask::wonder) about it.
    pub(in crate::heap) heard: u64,
    /// An event and the count that becomes safe when it is done.
    pub(in crate::heap) marker: Option<(Event, u64)>,
    /// The same after that, which is the marker next.
    pub(in crate::heap) later: Option<(Event, u64)>,
    /// Bytes that were given back since it was [asked early](crate::heap::ask::early).
    pub(in crate::heap) given_back: u64,
    /// Its stream has ended, when the heap's free counter was this. Nothing is recorded on it any more.
    pub(in crate::heap) retired: Option<u64>,
    /// The program said so, and with that that what it has is anybody's once its work is done.
    pub(in crate::heap) given_up: bool,
}

/// The lane of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) enum LaneOf {
    /// It was not asked for one yet.
    Unasked,
    /// There is none for it.
    None,
    Some(u8),
    /// It was that of a stream that has ended: recalled blocks are known by their numbers there.
    Left(u8),
}

impl Line {
    pub(super) fn new(arena: u16, any: u16) -> Line {
        let mut line = Line {
            arena: VACANT,
            any,
            free: std::array::from_fn(|_| FreeIndex::new()),
            lane: LaneOf::None,
            aside: Vec::new(),
            again: Default::default(),
            trials: Default::default(),
            classes: Classes::default(),
            drains: Backoff::default(),
            waiting: VecDeque::new(),
            safe: 0,
            done_to: 0,
            id: None,
            lasts: false,
            heard: 0,
            marker: None,
            later: None,
            given_back: 0,
            retired: None,
            given_up: false,
        };
        line.begin(arena, any);
        line
    }

    /// A vacant line is one of an arena from now on. Its index of free blocks is empty and stays.
    pub(super) fn begin(&mut self, arena: u16, any: u16) {
        (self.arena, self.any, self.drains) = (arena, any, Backoff::default());
        (self.id, self.lasts, self.given_up) = (None, false, false);
        if arena == COMMON {
            self.lane = LaneOf::Unasked;
            (self.again, self.trials) = (Again::both(), Default::default());
            self.classes = Classes::default();
        } else {
            self.lane = LaneOf::None;
        }
    }

    /// There may be a lane to be had by now.
    pub(in crate::heap) fn ask_again(&mut self) {
        if self.lane == LaneOf::None {
            self.lane = LaneOf::Unasked;
        }
    }

    #[inline]
    pub(in crate::heap) fn is_retired(&self) -> bool {
        self.retired.is_some()
    }

    /// Whether it has ended and all its work is known to be done.
    pub(in crate::heap) fn is_done(&self) -> bool {
        self.done_to == u64::MAX
    }

    /// Its own work is done up to a count. `shares`: that is enough for others to have what was freed before.
    pub(in crate::heap) fn reached(&mut self, count: u64, shares: bool) {
        self.done_to = self.done_to.max(count);
        if shares || self.given_up {
            self.safe = self.safe.max(count);
        }
    }

    /// Nothing that was freed until the free counter was `frees` is used by whoever has the line next.
    pub(in crate::heap) fn begin_anew(&mut self, frees: u64) {
        (self.safe, self.done_to) = (frees, frees);
    }

    /// The event that tells how far it is, if it can be asked.
    pub(in crate::heap) fn recorded_marker(&self) -> Option<&Event> {
        let marker = self.marker.as_ref().map(|(event, _)| event);
        marker.filter(|event| event.is_recorded())
    }

    /// The marker is done: the later one is next, unless the driver refused it.
    pub(in crate::heap) fn begin_later(&mut self) {
        self.marker = self.later.take().filter(|(event, _)| event.is_recorded());
    }

    /// Whether nothing but blocks that are held, or are to be freed elsewhere, can belong to it.
    pub(in crate::heap) fn is_bare(&self) -> bool {
        let free = self.free.iter().all(FreeIndex::is_empty);
        free && self.waiting.is_empty() && self.aside.is_empty() && self.marker.is_none()
    }

    /// Whether it may have something set aside: it has a lane, or room for stitched blocks.
    pub(in crate::heap) fn may_have_aside(&self) -> bool {
        matches!(self.lane, LaneOf::Some(_)) || self.aside.capacity() > 0
    }

    /// Takes the stitched block of a size that was set aside last.
    pub(in crate::heap) fn take_aside_of(&mut self, size: u64) -> Option<u32> {
        let at = self.aside.iter().rposition(|(its, _)| *its == size)?;
        Some(self.aside.remove(at).1)
    }

    /// Takes a certain stitched block. Whether it was set aside.
    pub(in crate::heap) fn take_aside(&mut self, b: u32) -> bool {
        let at = self.aside.iter().position(|(_, other)| *other == b);
        at.map(|at| self.aside.remove(at)).is_some()
    }
}
