//! The event rings of a channel: the publisher's, and one of each lane.

use super::Reader;
use super::figures::Lane;
use crate::error::ReadError;
use crate::format::{Section, lane, live};
use crate::layout::Layout;

/// No writer gets here. Keeps what is computed from a count within bounds.
const COUNT_MAX: u64 = 1 << 60;

/// A ring, and how far it was read.
pub(super) struct Ring {
    pub(super) section: Section,
    /// Number of the lane whose it is.
    pub(super) lane: Option<u8>,
    /// The word that counts its events, and the most that it was seen to say.
    counter: usize,
    count: u64,
    /// Index of the next event to hand out.
    pub(super) next: u64,
    /// Events that were there before the publisher's were looked at, and after that: see `merge.rs`.
    pub(super) sure: u64,
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

    /// The place of event number `index`.
    pub(super) fn slot(&self, index: u64) -> usize {
        (index % self.section.count as u64) as usize
    }
}

impl Reader {
    /// Lanes that were opened so far.
    pub(super) fn lanes_opened(&self) -> Result<usize, ReadError> {
        self.source.lanes(&self.layout.live, &self.layout.lanes)
    }

    /// Opens the lanes that the publisher has opened since.
    pub(super) fn find_lanes(&mut self) -> Result<(), ReadError> {
        for number in self.lanes.len()..self.lanes_opened()? {
            let state = self.source.load(self.layout.lanes.record(number).start + lane::STATE)?;
            self.lanes.push(Lane::new(state));
            // No more lanes than a byte can number: the layout was checked.
            self.rings.push(Ring::of_lane(&self.layout, number as u8));
        }
        Ok(())
    }

    /// Events in a ring so far.
    pub(super) fn published(&self, ring: usize) -> Result<u64, ReadError> {
        Ok(self.source.load(self.rings[ring].counter)?.min(COUNT_MAX))
    }

    /// Events in all of them. Never goes back.
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
