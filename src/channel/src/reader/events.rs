//! The event ring, read by copying what is new.

use std::ops::Range;

use super::Reader;
use crate::cells::{self, Cell};
use crate::codec;
use crate::error::ReadError;
use crate::layout::{live, words};
use crate::record::Event;
use crate::seqlock;
use crate::snapshot::Events;

/// Events that are copied at a time.
const AT_ONCE: u64 = 512;
/// No publisher gets here. Keeps what is computed from a count within bounds.
const COUNT_MAX: u64 = 1 << 60;

impl Reader {
    /// The events since the last call, oldest first. The first call returns what the ring still holds.
    ///
    /// # Errors
    /// When the file itself fails.
    pub fn events(&mut self) -> Result<Events, ReadError> {
        let mut events = Vec::new();
        let lost = self.each_event(|event| events.push(*event))?;
        Ok(Events { events, lost })
    }

    /// Shows every event since the last call to `see`, oldest first, and returns how many were lost. For who wants few of many.
    ///
    /// # Errors
    /// When the file itself fails.
    pub fn each_event(&mut self, mut see: impl FnMut(&Event)) -> Result<u64, ReadError> {
        let head = self.published()?;
        let lost = self.events_in(self.next_event..head, &mut |event, _| see(event))?;
        self.next_event = head.max(self.next_event);
        self.events_lost += lost;
        Ok(lost)
    }

    /// Shows those of these events that the ring still holds, and whether their figures follow from them. Returns how many were
    /// lost. The end of the range was read as the count of events.
    fn events_in(&mut self, events: Range<u64>, see: &mut impl FnMut(&Event, bool)) -> Result<u64, ReadError> {
        self.source.fence();
        let (head, count) = (events.end, self.layout.events.count as u64);
        let oldest = head.saturating_sub(count);
        let mut lost = oldest.saturating_sub(events.start);
        let mut next = events.start.max(oldest);
        while next < head {
            // Not beyond the end of the ring: the rest is at its start.
            let to = head.min(next + AT_ONCE).min((next / count + 1) * count);
            lost += self.copy_events(next..to, see)?;
            next = to;
        }
        Ok(lost)
    }

    /// The figures of a device: those of a cell, and what the events since did; and whether all of them could be followed. `None` if
    /// these were overwritten meanwhile.
    pub(super) fn follow_events(&mut self, device: usize, cell: &Cell) -> Result<Option<(Cell, bool)>, ReadError> {
        let head = self.published()?;
        let mut now = Cell {
            events: cell.events.min(head),
            ..*cell
        };
        let mut known = true;
        let lost = self.events_in(now.events..head, &mut |event, follows| {
            if known && usize::from(event.device) == device {
                known = follows;
                if follows {
                    cells::follow(&mut now.stats, event);
                    now.events = event.index + 1;
                }
            }
        })?;
        Ok((lost == 0).then_some((now, known)))
    }

    fn published(&self) -> Result<u64, ReadError> {
        Ok(self.live(live::EVENTS)?.min(COUNT_MAX))
    }

    /// Shows these events, whose records follow each other. Returns how many were lost.
    fn copy_events(&mut self, events: Range<u64>, see: &mut impl FnMut(&Event, bool)) -> Result<u64, ReadError> {
        let ring = self.layout.events;
        let slot = |index: u64| (index % ring.count as u64) as usize;
        self.ring.resize((events.end - events.start) as usize * ring.stride, 0);
        self.copied
            .copy(ring.record(slot(events.start)).start, &mut self.ring)?;
        // After the copy. A publisher touches the record of event n only once it has counted all before n: from this event on, no
        // record was touched again before it was copied.
        self.source.fence();
        let untouched = (self.published()? + 1).saturating_sub(ring.count as u64);
        let mut lost = 0;
        for (index, record) in events.zip(self.ring.chunks_exact(ring.stride)) {
            let finished = Some(seqlock::finished(index));
            let mut data = [0; words::EVENT - 1];
            let mut seq = Some(record[0]);
            data.copy_from_slice(&record[1..words::EVENT]);
            if index < untouched {
                // The last but one may still be whole, which takes a second look at its sequence word. The others are gone.
                seq = None;
                if index + 1 == untouched {
                    let at = slot(index);
                    self.copied.changed(
                        &ring,
                        at..at + 1,
                        |_| 0,
                        |_, record| {
                            (seq, data) = record.map_or((None, data), |(seq, data)| (Some(seq), data));
                        },
                    )?;
                }
            }
            match seq == finished {
                true => see(&codec::to_event(index, &data), codec::follows(&data)),
                false => lost += 1,
            }
        }
        Ok(lost)
    }

    /// When the last event happened: nanoseconds since 1970, as far as the file tells.
    pub(crate) fn last_event_realtime(&mut self) -> Option<u64> {
        self.next_event = self.published().ok()?.saturating_sub(1);
        let last = self.events().ok()?.events.pop()?;
        // The tick that stamps events may lie a little before the creation that was timed exactly.
        self.identity
            .created_realtime
            .checked_add(last.time.saturating_sub(self.identity.created_monotonic))
    }
}
