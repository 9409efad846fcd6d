//! The figures of devices: the publisher's cells, what the lanes count, and what the events since did to either.

use super::Reader;
use crate::cells::{self, Cell};
use crate::error::ReadError;
use crate::format::{lane, words};
use crate::snapshot::LaneView;
use crate::stats::DeviceStats;

/// Looks at figures that a writer in the middle of a change is worth.
const ATTEMPTS: usize = 8;
/// Looks at all of them for the sake of a moment in which no lane publishes. One takes a microsecond or two, about as long as what a busy
/// thread does between two blocks.
const MOMENTS: usize = 32;

/// A lane as it was read last.
pub(super) struct Lane {
    device: u8,
    /// What it adds to the figures of its device, and the number of its events that this is after.
    part: Cell,
    /// The words that move when it publishes, as they were before that was read in full.
    read: Option<[u64; 3]>,
}

impl Lane {
    /// A lane whose record says this.
    pub(super) fn new(state: u64) -> Lane {
        Lane {
            device: (state >> 8) as u8,
            part: Cell::default(),
            read: None,
        }
    }
}

impl Reader {
    /// Reads the newest figures of every lane, and then those of the publisher, as often as it takes until no lane published
    /// meanwhile: then they are of one moment.
    ///
    /// If that does not come, what a lane and the heap, or two lanes, hand each other meanwhile may be shown twice or not at all. The
    /// publisher's come last because they have the peaks: these are then no older than what is to be below them.
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
            // A lane that was opened meanwhile may have published, too.
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

    /// What moves when a lane publishes, of all of them: its events, and the numbers of its cells. These only grow, so an equal sum is
    /// equal parts.
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

    /// The newest figures of a device that a ring's writer tells, `old` if there are none that are newer; and whether that is all that
    /// it tells.
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
            // Else there is a newer cell, unless the writer is in the middle of a change, or made a mark and nothing since.
            if whole || tried == Some(cell.seq) {
                return Ok((newest, whole));
            }
            tried = Some(cell.seq);
        }
        Ok((newest, false))
    }

    /// The newest cell of a ring's writer. That of a lane which wrote none yet is all zero.
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

    /// A device's figures, if its publisher published any.
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

    /// The lanes, as they were read last.
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
