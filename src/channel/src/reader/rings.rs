//! The event rings of a channel: the publisher's, and one of each lane.

use super::Reader;
use super::figures::Lane;
use crate::error::ReadError;
use crate::format::{Section, lane, live};
use crate::layout::Layout;

/// A count that no writer reaches. It keeps values computed from a count within bounds.
const COUNT_MAX: u64 = 1 << 60;

/// An event ring, and how far it was read.
pub(super) struct Ring {
    pub(super) section: Section,
    /// Number of the lane that owns it; `None` for the publisher's.
    pub(super) lane: Option<u8>,
    /// The word that counts its events.
    counter: usize,
    /// The highest count that was read.
    count: u64,
    /// Index of the next event to hand out.
    pub(super) next: u64,
    /// Number of events counted before the publisher's count was read: see `merge.rs`.
    pub(super) sure: u64,
    /// Number of events counted after it.
    pub(super) seen: u64,
}

impl Ring {
    pub(super) fn of_publisher(layout: &Layout) -> Ring {
        Ring::new(None, layout.events, layout.live.start + live::EVENTS)
    }

    fn of_lane(layout: &Layout, number: u8) -> Ring {
        let record = layout.lanes.record(usize::from(number));
        let section = layout.lane_ring(usize::from(number));
        Ring::new(Some(number), section, record.start + lane::EVENTS)
    }

    fn new(lane: Option<u8>, section: Section, counter: usize) -> Ring {
        Ring {
            section,
            lane,
            counter,
            count: 0,
            next: 0,
            sure: 0,
            seen: 0,
        }
    }

    /// Returns the slot of event number `index`.
    pub(super) fn slot(&self, index: u64) -> usize {
        (index % self.section.count as u64) as usize
    }
}

impl Reader {
    /// Returns the number of lanes opened so far.
    pub(super) fn lanes_opened(&self) -> Result<usize, ReadError> {
        self.source.lanes(&self.layout.live, &self.layout.lanes)
    }

    /// Adds the lanes that the publisher has opened since the last call.
    pub(super) fn find_lanes(&mut self) -> Result<(), ReadError> {
        for number in self.lanes.len()..self.lanes_opened()? {
            let state = self.source.load(self.layout.lanes.record(number).start + lane::STATE)?;
            self.lanes.push(Lane::new(state));
            // The layout was checked: a byte can number all lanes.
            self.rings.push(Ring::of_lane(&self.layout, number as u8));
        }
        Ok(())
    }

    /// Returns the number of events published in a ring so far.
    pub(super) fn published(&self, ring: usize) -> Result<u64, ReadError> {
        Ok(self.source.load(self.rings[ring].counter)?.min(COUNT_MAX))
    }

    /// Returns the number of events in all rings. Never goes back.
    pub(super) fn count_events(&mut self) -> Result<u64, ReadError> {
        let mut sum = 0u64;
        for ring in 0..self.rings.len() {
            let count = self.published(ring)?.max(self.rings[ring].count);
            self.rings[ring].count = count;
            sum = sum.saturating_add(count);
        }
        Ok(sum)
    }
}
