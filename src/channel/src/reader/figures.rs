//! The figures of devices: the publisher's cells, the lanes' cells, and the events after either.

use super::Reader;
use crate::cells::{self, Cell};
use crate::error::ReadError;
use crate::format::{lane, words};
use crate::snapshot::LaneView;
use crate::stats::DeviceStats;

/// Most attempts to read figures while their writer is in the middle of a change.
const ATTEMPTS: usize = 8;
/// Most attempts to read all figures while no lane publishes. One attempt takes a microsecond or two, about as long as
/// a busy thread works between two blocks.
const MOMENTS: usize = 32;

/// The state of a lane when it was last read.
pub(super) struct Lane {
    device: u8,
    /// Its part of its device's figures, with the number of its events before them.
    part: Cell,
    /// The words that change when it publishes, read before the part was.
    read: Option<[u64; 3]>,
}

impl Lane {
    /// Makes the state of a lane from the state word of its record.
    pub(super) fn new(state: u64) -> Lane {
        Lane {
            device: (state >> 8) as u8,
            part: Cell::default(),
            read: None,
        }
    }
}

impl Reader {
    /// Reads the newest figures of every lane and then those of the publisher, and repeats this until no lane published
    /// meanwhile: then they are of one moment.
    ///
    /// If the attempts run out, a block that passes between a lane and the heap, or between two lanes, may be counted
    /// twice or not at all. The publisher's figures are read last because they have the peaks, which must not be older
    /// than the values below them.
    pub(super) fn refresh_figures(&mut self) -> Result<(), ReadError> {
        self.of_one_moment = false;
        for _ in 0..MOMENTS {
            self.find_lanes()?;
            let before = self.lane_moves()?;
            for lane in 0..self.lanes.len() {
                self.refresh_lane(lane)?;
            }
            for device in 0..self.figures.len() {
                (self.figures[device], _) = self.newest(0, device, self.figures[device])?;
            }
            // A lane that was opened meanwhile may have published too.
            if self.lane_moves()? == before && self.lanes_opened()? == self.lanes.len() {
                self.of_one_moment = true;
                break;
            }
        }
        Ok(())
    }

    fn refresh_lane(&mut self, lane: usize) -> Result<(), ReadError> {
        let cells = self.layout.lanes.record(lane).start + lane::CELLS;
        let now = [
            self.published(1 + lane)?,
            self.source.load(cells)?,
            self.source.load(cells + words::LANE_CELL)?,
        ];
        self.source.fence();
        if self.lanes[lane].read == Some(now) {
            return Ok(());
        }
        let (device, part) = (self.lanes[lane].device, self.lanes[lane].part);
        let (newest, whole) = self.newest(1 + lane, device.into(), Some(part))?;
        self.lanes[lane].part = newest.unwrap_or(part);
        self.lanes[lane].read = whole.then_some(now);
        Ok(())
    }

    /// Returns the sum of the words that change when a lane publishes: its count of events and the sequence numbers of
    /// its cells. These only grow, so equal sums mean equal words.
    fn lane_moves(&self) -> Result<u64, ReadError> {
        (0..self.lanes.len()).try_fold(0, |sum: u64, lane| {
            let cells = self.layout.lanes.record(lane).start + lane::CELLS;
            let numbers = [cells, cells + words::LANE_CELL].map(|at| self.source.load(at));
            let [one, other] = numbers;
            Ok(sum
                .wrapping_add(self.published(1 + lane)?)
                .wrapping_add(one?)
                .wrapping_add(other?))
        })
    }

    /// Returns the newest figures of a device from a ring's writer, or `old` if there are no newer ones; and whether
    /// they are complete.
    fn newest(&mut self, ring: usize, device: usize, old: Option<Cell>) -> Result<(Option<Cell>, bool), ReadError> {
        let mut newest = old;
        let mut tried = None;
        for _ in 0..ATTEMPTS {
            let cell = self.cell(ring, device)?;
            let Some(cell) = cell.filter(|cell| newest.is_none_or(|old| cell.seq >= old.seq)) else {
                break;
            };
            let followed = self.follow_events(ring, device, &cell)?;
            let whole = followed.is_some_and(|(_, whole)| whole);
            if let Some((now, _)) = followed.filter(|(now, _)| newest.is_none_or(|old| now.events >= old.events)) {
                newest = Some(now);
            }
            // Otherwise there is a newer cell, unless the writer is in the middle of a change, or made only a mark
            // since.
            if whole || tried == Some(cell.seq) {
                return Ok((newest, whole));
            }
            tried = Some(cell.seq);
        }
        Ok((newest, false))
    }

    /// Reads the newest cell of a ring's writer. A lane that has not written a cell yet has zeros.
    fn cell(&self, ring: usize, device: usize) -> Result<Option<Cell>, ReadError> {
        match ring.checked_sub(1) {
            None => {
                let start = self.layout.stats.record(device).start;
                self.source.cells(start, cells::of_publisher)
            }
            Some(lane) => {
                let start = self.layout.lanes.record(lane).start + lane::CELLS;
                Ok(Some(self.source.cells(start, cells::of_lane)?.unwrap_or_default()))
            }
        }
    }

    /// Returns a device's figures, if its publisher has published any.
    pub(super) fn figures_of(&self, device: usize) -> Option<DeviceStats> {
        let mut stats = self.figures.get(device)?.as_ref()?.stats;
        let used = |lane: &&Lane| lane.part.seq > 0 || lane.part.events > 0;
        let lanes = self.lanes.iter().filter(|lane| usize::from(lane.device) == device);
        let mut lanes = lanes.filter(used).peekable();
        if lanes.peek().is_some() {
            lanes.for_each(|lane| cells::add(&mut stats, &lane.part.stats));
            cells::settle(&mut stats);
            if !self.of_one_moment {
                cells::reconcile(&mut stats);
            }
        }
        Some(stats)
    }

    /// Returns the lanes as they were last read.
    pub(super) fn view_lanes(&self) -> Result<Vec<LaneView>, ReadError> {
        let mut views = Vec::with_capacity(self.lanes.len());
        for (number, lane) in self.lanes.iter().enumerate() {
            let record = self.layout.lanes.record(number).start;
            let state = self.source.load(record + lane::STATE)?;
            views.push(LaneView {
                device: lane.device,
                stream: self.source.load(record + lane::STREAM)?,
                open: state & 0xff == lane::OPEN,
                event_count: lane.part.events,
                figures: cells::figures_of(&lane.part.stats),
            });
        }
        Ok(views)
    }
}
