//! Streams and events: work that is done when the timeline says so.

use super::handles::Name;
use super::{State, Timeline};
use crate::device::{Call, Result};
use crate::stream::Stream;

#[derive(Debug)]
pub(super) struct Work {
    number: u64,
    addr: u64,
    bytes: u64,
    /// The memory behind these addresses when it was queued.
    places: Vec<Place>,
    due: u64,
}

/// A part of a physical chunk.
#[derive(Clone, Copy, Debug)]
struct Place {
    physical: u64,
    from: u64,
    to: u64,
}

impl Place {
    fn overlaps(&self, other: &Place) -> bool {
        self.physical == other.physical && self.from < other.to && other.from < self.to
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    submitted: u64,
    completed: u64,
    work: Vec<Work>,
}

impl Queue {
    fn is_done(&self) -> bool {
        self.work.is_empty()
    }
}

impl State {
    /// What the timeline goes by.
    fn now(&self) -> u64 {
        match self.timeline {
            Timeline::Behind(_) => self.launches,
            Timeline::Immediate | Timeline::Manual | Timeline::After(_) => self.clock,
        }
    }

    pub(super) fn settle(&mut self) {
        let now = self.now();
        for queue in self.queues.values_mut() {
            while let Some(first) = queue.work.first()
                && first.due <= now
            {
                queue.completed = first.number;
                queue.work.remove(0);
            }
        }
        self.forget_queues();
    }

    /// Forgets what destroyed streams have done: an event of theirs that is not found here is done.
    pub(super) fn forget_queues(&mut self) {
        let handles = &self.handles;
        self.queues
            .retain(|name, queue| handles.is_alive(*name) || !queue.is_done());
    }

    pub(in crate::device::sim) fn enqueue(&mut self, stream: Stream, addr: u64, bytes: u64) {
        match self.handles.name_of(stream) {
            Some(name) => {
                self.launches += 1;
                self.queue(name, addr, bytes);
            }
            None => self
                .violations
                .push(format!("a launch: stream {:#x} was destroyed", stream.0)),
        }
    }

    fn queue(&mut self, name: Name, addr: u64, bytes: u64) -> u64 {
        let due = match self.timeline {
            Timeline::Immediate => self.now(),
            Timeline::Manual => u64::MAX,
            Timeline::After(further) | Timeline::Behind(further) => self.now().saturating_add(further),
        };
        let places = self.places(addr, bytes);
        let queue = self.queues.entry(name).or_default();
        queue.submitted += 1;
        let number = queue.submitted;
        queue.work.push(Work {
            number,
            addr,
            bytes,
            places,
            due,
        });
        self.settle();
        number
    }

    /// Of streams of the same handle those destroyed first come first.
    pub(in crate::device::sim) fn advance(&mut self, stream: Stream, steps: u64) {
        let mut left = steps;
        for (_, queue) in self.queues.range_mut((stream, 0)..=(stream, u64::MAX)) {
            let done = left.min(queue.submitted - queue.completed);
            left -= done;
            queue.completed += done;
            queue.work.retain(|work| work.number > queue.completed);
        }
        self.forget_queues();
    }

    /// Those of the same handle that were destroyed go on.
    pub(in crate::device::sim) fn finish_living(&mut self, stream: Stream) {
        if let Some(queue) = self.handles.name_of(stream).and_then(|name| self.queues.get_mut(&name)) {
            queue.completed = queue.submitted;
            queue.work.clear();
        }
        self.forget_queues();
    }

    pub(super) fn finish_all(&mut self) {
        for queue in self.queues.values_mut() {
            queue.completed = queue.submitted;
            queue.work.clear();
        }
        self.forget_queues();
    }

    /// The physical memory behind addresses.
    fn places(&self, addr: u64, bytes: u64) -> Vec<Place> {
        let end = addr + bytes;
        let before = self.mappings.range(..=addr).next_back();
        let inside = self.mappings.range(addr + 1..end.max(addr + 1));
        let overlapping = before
            .into_iter()
            .chain(inside)
            .filter(|(at, m)| **at < end && addr < **at + m.size);
        overlapping
            .map(|(at, mapping)| Place {
                physical: mapping.physical,
                from: addr.max(*at) - at,
                to: end.min(at + mapping.size) - at,
            })
            .collect()
    }

    /// Whether unfinished work uses any of these addresses.
    pub(super) fn busy(&self, addr: u64, bytes: u64) -> bool {
        let mut work = self.queues.values().flat_map(|queue| &queue.work);
        work.any(|work| work.addr < addr + bytes && addr < work.addr + work.bytes)
    }

    /// Whether unfinished work of other streams uses any of the memory behind these addresses, by whatever address.
    pub(in crate::device::sim) fn busy_for(&self, stream: Stream, addr: u64, bytes: u64) -> bool {
        let places = self.places(addr, bytes);
        let own = self.handles.name_of(stream);
        let others = self.queues.iter().filter(|(other, _)| Some(**other) != own);
        let mut used = others.flat_map(|(_, queue)| &queue.work).flat_map(|work| &work.places);
        used.any(|used| places.iter().any(|place| place.overlaps(used)))
    }

    pub(in crate::device::sim) fn is_idle(&mut self, stream: Stream) -> Result<bool> {
        self.begin(Call::QueryStream, 0, 0)?;
        let name = self.named(Call::QueryStream, stream)?;
        if stream.is_of_another_thread() {
            // The default stream is asked, which waits for all of them.
            let mut queues = self
                .queues
                .iter()
                .filter(|((stream, _), _)| *stream == Stream::DEFAULT || stream.is_per_thread());
            return Ok(queues.all(|(_, queue)| queue.is_done()));
        }
        Ok(self.queues.get(&name).is_none_or(Queue::is_done))
    }

    pub(in crate::device::sim) fn record(&mut self, stream: Stream) -> Result<u64> {
        self.begin(Call::Record, 0, 0)?;
        let name = self.named(Call::Record, stream)?;
        let number = self.queue(name, 0, 0);
        Ok(self.new_event(vec![(name, number)]))
    }

    pub(in crate::device::sim) fn record_all(&mut self) -> Result<u64> {
        self.begin(Call::RecordAll, 0, 0)?;
        let all = self
            .queues
            .iter()
            .map(|(name, queue)| (*name, queue.submitted))
            .collect();
        Ok(self.new_event(all))
    }

    fn new_event(&mut self, waits_for: Vec<(Name, u64)>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.events.insert(id, waits_for);
        id
    }

    pub(in crate::device::sim) fn query(&mut self, id: u64) -> Result<bool> {
        self.begin(Call::Query, 0, 0)?;
        let queues = &self.queues;
        let is_done = |(name, number): &(Name, u64)| queues.get(name).is_none_or(|queue| queue.completed >= *number);
        match self.events.get(&id).map(|waits_for| waits_for.iter().all(is_done)) {
            Some(done) => Ok(done),
            None => self.violation(Call::Query, format!("event {id} is not alive")),
        }
    }

    pub(in crate::device::sim) fn retire(&mut self, id: u64) {
        if self.events.remove(&id).is_none() {
            self.violations.push(format!("cuEventDestroy: event {id} is not alive"));
        }
    }

    pub(in crate::device::sim) fn synchronize(&mut self) -> Result<()> {
        self.begin(Call::Synchronize, 0, 0)?;
        self.finish_all();
        Ok(())
    }
}
