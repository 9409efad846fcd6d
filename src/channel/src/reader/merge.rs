//! The events of all rings as one story.
//!
//! Each ring has its events in order. Between rings only those are ordered that lie on two sides of a meeting: the publisher and a
//! lane meet, and from then on both have a later time, or a higher number at the same time, than either had before. So a merge by
//! time and number keeps to the order, of what it is given.
//!
//! It must not be given an event without those that came before it on other rings, which a later call would hand out too late. So
//! the counts are read in turn: the lanes', the publisher's, and the lanes' again. Those that the first look saw, and the
//! publisher's, are *sure*: whatever came before a lane's sure events was there when the publisher's count was read, and whatever
//! came before any of these was there at the second look. What only that look saw is handed out if its number is no higher than one
//! of a sure event: all that came before it has a lower number still, on the publisher's ring or, by way of it, on another lane's, and
//! was there too. The rest waits for the next call, by when it is sure.

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
    /// The events since the last call, by time. Those of the publisher and a lane of the same time are in the order in which they
    /// happened, if either waited for the other in between ([`Publisher::meet`](crate::Publisher::meet)), and else the publisher's come
    /// first. The first call returns what the rings still hold.
    ///
    /// # Errors
    /// When the file itself fails.
    pub fn events(&mut self) -> Result<Events, ReadError> {
        let mut events = Vec::new();
        let lost = self.each_event(|event| events.push(*event))?;
        Ok(Events { events, lost })
    }

    /// Shows every event since the last call to `see`, in the same order, and returns how many were lost. For who wants few of many.
    ///
    /// # Errors
    /// When the file itself fails.
    pub fn each_event(&mut self, see: impl FnMut(&Event)) -> Result<u64, ReadError> {
        self.look_at_lanes()?;
        self.look_at_own_ring()?;
        self.look_at_lanes_again()?;
        self.hand_out(see)
    }

    /// Shows what the three looks allow.
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
        // One that was opened since has published nothing that is sure.
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

    /// When the last event happened: nanoseconds since 1970, as far as the file tells.
    pub(crate) fn last_event_realtime(&mut self) -> Option<u64> {
        self.find_lanes().ok()?;
        for ring in 0..self.rings.len() {
            self.rings[ring].next = self.published(ring).ok()?.saturating_sub(1);
        }
        let last = self.events().ok()?.events.into_iter().map(|event| event.time).max()?;
        identity::realtime_of(&self.identity, last)
    }
}

/// The later of two numbers of meetings, which wrap.
fn later(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if (b.wrapping_sub(a) as i32) > 0 { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// Whether `a` comes before `b`, of two that are next on their rings.
fn before(a: &Stored, b: &Stored) -> bool {
    let number = (a.order.wrapping_sub(b.order) as i32) < 0;
    a.event.time < b.event.time || (a.event.time == b.event.time && number)
}

/// Shows all of them, by time and number, each queue in its own order whatever its events say, and the first queue's first among
/// equals.
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
