//! Merges the events of all rings into one sequence.
//!
//! Each ring has its events in order. Events of different rings are ordered only by meetings: after the publisher and a
//! lane [meet](crate::Publisher::meet), both have a later time, or a higher number at the same time, than either had
//! before. So a merge by time and number keeps the order of the events that it is given.
//!
//! The merge must not be given an event without the earlier events of other rings, which a later call would then return
//! too late. So the counts are read three times: the lanes', the publisher's, and the lanes' again. The lanes' events
//! counted first, and the publisher's events, are *sure*: everything before a lane's sure events was there when the
//! publisher's count was read, and everything before the publisher's events was there when the lanes were counted
//! again. An event that only the last count includes is returned if its number is no higher than that of a sure event:
//! everything before it has a lower number, on the publisher's ring or through it on another lane's, and was counted
//! too. The remaining events wait for the next call, at which they are sure.

use std::ops::ControlFlow;

use super::Reader;
use super::events::Stored;
use crate::error::ReadError;
use crate::identity;
use crate::record::Event;
use crate::snapshot::Events;

#[cfg(test)]
mod tests;

impl Reader {
    /// Returns the events since the last call, by time. Events of the publisher and a lane at the same time are in the
    /// order in which they happened if the two met in between ([`Publisher::meet`](crate::Publisher::meet)); otherwise
    /// the publisher's come first. The first call returns the events that the rings still hold.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn events(&mut self) -> Result<Events, ReadError> {
        let mut events = Vec::new();
        let lost = self.each_event(|event| events.push(*event))?;
        Ok(Events { events, lost })
    }

    /// Passes every event since the last call to `see`, in the order of [`Reader::events`], and returns how many were
    /// lost. For callers that need few of many events.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn each_event(&mut self, see: impl FnMut(&Event)) -> Result<u64, ReadError> {
        self.look_at_lanes()?;
        self.look_at_own_ring()?;
        self.look_at_lanes_again()?;
        self.hand_out(see)
    }

    /// Passes on the events that the three counts allow.
    fn hand_out(&mut self, mut see: impl FnMut(&Event)) -> Result<u64, ReadError> {
        let lost = match self.rings[1..].iter().any(|ring| ring.next < ring.seen) {
            true => self.merged(&mut see)?,
            false => {
                let (next, seen) = (self.rings[0].next, self.rings[0].seen);
                let lost = self.events_in(0, next..seen, &mut |stored| {
                    see(&stored.event);
                    ControlFlow::Continue(())
                })?;
                self.rings[0].next = seen.max(next);
                lost
            }
        };
        self.events_lost = self.events_lost.saturating_add(lost);
        Ok(lost)
    }

    fn look_at_lanes(&mut self) -> Result<(), ReadError> {
        self.find_lanes()?;
        for ring in 1..self.rings.len() {
            self.look_at_lane(ring)?;
        }
        Ok(())
    }

    fn look_at_lane(&mut self, ring: usize) -> Result<(), ReadError> {
        self.rings[ring].sure = self.published(ring)?;
        self.source.fence();
        Ok(())
    }

    fn look_at_own_ring(&mut self) -> Result<(), ReadError> {
        self.rings[0].sure = self.published(0)?;
        self.rings[0].seen = self.rings[0].sure;
        self.source.fence();
        Ok(())
    }

    fn look_at_lanes_again(&mut self) -> Result<(), ReadError> {
        // A lane that was opened since then has no sure events.
        self.find_lanes()?;
        for ring in 1..self.rings.len() {
            self.rings[ring].seen = self.published(ring)?.max(self.rings[ring].sure);
        }
        Ok(())
    }

    fn merged(&mut self, see: &mut impl FnMut(&Event)) -> Result<u64, ReadError> {
        let mut queues = Vec::with_capacity(self.rings.len());
        let mut highest = None;
        for ring in 0..self.rings.len() {
            let (next, sure, seen) = (self.rings[ring].next, self.rings[ring].sure, self.rings[ring].seen);
            let mut queue = Vec::new();
            self.events_in(ring, next..seen, &mut |stored| {
                queue.push(*stored);
                ControlFlow::Continue(())
            })?;
            let last = queue.iter().rfind(|stored| stored.event.index < sure);
            highest = later(highest, last.map(|stored| stored.order));
            queues.push(queue);
        }
        let mut lost = 0u64;
        for (ring, queue) in self.rings.iter_mut().zip(&mut queues) {
            let waits =
                |stored: &Stored| stored.event.index >= ring.sure && later(highest, Some(stored.order)) != highest;
            let end = queue.iter().position(waits);
            let until = end.map_or(ring.seen, |end| queue[end].event.index);
            queue.truncate(end.unwrap_or(queue.len()));
            lost = lost.saturating_add(until.saturating_sub(ring.next) - queue.len() as u64);
            ring.next = until.max(ring.next);
        }
        merge(&queues, |stored| see(&stored.event));
        Ok(lost)
    }

    /// Returns the time of the last event in nanoseconds since 1970, if the file tells it.
    pub(crate) fn last_event_realtime(&mut self) -> Option<u64> {
        self.find_lanes().ok()?;
        for ring in 0..self.rings.len() {
            self.rings[ring].next = self.published(ring).ok()?.saturating_sub(1);
        }
        let last = self.events().ok()?.events.into_iter().map(|event| event.time).max()?;
        identity::realtime_of(&self.identity, last)
    }
}

/// Returns the later of two numbers of meetings, which wrap around.
fn later(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if (b.wrapping_sub(a) as i32) > 0 { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// Whether `a` comes before `b`, if each is the next event of its ring.
fn before(a: &Stored, b: &Stored) -> bool {
    let number = (a.order.wrapping_sub(b.order) as i32) < 0;
    a.event.time < b.event.time || (a.event.time == b.event.time && number)
}

/// Passes on all events by time and number. Each queue keeps its own order whatever its events say, and equal events
/// come from the first queue first.
fn merge(queues: &[Vec<Stored>], mut see: impl FnMut(&Stored)) {
    let mut next: Vec<&[Stored]> = queues.iter().map(Vec::as_slice).collect();
    loop {
        let mut first: Option<(usize, &Stored)> = None;
        for (ring, queue) in next.iter().enumerate() {
            if let Some(stored) = queue.first()
                && first.is_none_or(|(_, first)| before(stored, first))
            {
                first = Some((ring, stored));
            }
        }
        let Some((ring, stored)) = first else { return };
        see(stored);
        next[ring] = &next[ring][1..];
    }
}
