//! Reads the events of one ring by copying the new ones.

use std::ops::{ControlFlow, Range};

use super::Reader;
use super::rings::Ring;
use crate::cells::{self, Cell};
use crate::codec;
use crate::error::ReadError;
use crate::format::words;
use crate::record::Event;
use crate::seqlock;

/// Number of events copied at a time.
const AT_ONCE: u64 = 512;

/// An event with its stored metadata.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stored {
    pub(super) event: Event,
    /// Whether its effect on the figures follows from the event.
    pub(super) follows: bool,
    /// The number of its writer's last meeting before it.
    pub(super) order: u32,
}

impl Reader {
    /// Passes those events of a range that the ring still holds to `see`, until `see` breaks. Returns how many were
    /// lost. The end of the range must come from the ring's count of events.
    pub(super) fn events_in(
        &mut self,
        ring: usize,
        events: Range<u64>,
        see: &mut impl FnMut(&Stored) -> ControlFlow<()>,
    ) -> Result<u64, ReadError> {
        self.source.fence();
        let (head, count) = (events.end, self.rings[ring].section.count as u64);
        let oldest = head.saturating_sub(count);
        let mut lost = oldest.saturating_sub(events.start);
        let mut next = events.start.max(oldest);
        while next < head {
            // Not beyond the end of the ring: the rest begins at its start.
            let to = head.min(next + AT_ONCE).min((next / count + 1) * count);
            if self.copy_events(ring, next..to, &mut lost, see)?.is_break() {
                break;
            }
            next = to;
        }
        Ok(lost)
    }

    /// Returns the figures of a device from a cell and the later events of the cell's writer, and whether all of these
    /// could be followed. Returns `None` if events were overwritten meanwhile.
    pub(super) fn follow_events(
        &mut self,
        ring: usize,
        device: usize,
        cell: &Cell,
    ) -> Result<Option<(Cell, bool)>, ReadError> {
        let head = self.published(ring)?;
        let mut now = Cell {
            events: cell.events.min(head),
            ..*cell
        };
        let mut known = true;
        let lost = self.events_in(ring, now.events..head, &mut |Stored { event, follows, .. }| {
            if usize::from(event.device) == device {
                known = *follows;
                if !known {
                    return ControlFlow::Break(());
                }
                cells::follow(&mut now.stats, event);
                now.events = event.index + 1;
            }
            ControlFlow::Continue(())
        })?;
        Ok((lost == 0).then_some((now, known)))
    }

    /// Passes a contiguous range of records to `see`, and counts the lost ones.
    fn copy_events(
        &mut self,
        ring: usize,
        events: Range<u64>,
        lost: &mut u64,
        see: &mut impl FnMut(&Stored) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ReadError> {
        let Ring { section, lane, .. } = self.rings[ring];
        let first = section.record(self.rings[ring].slot(events.start)).start;
        self.copy
            .resize((events.end - events.start) as usize * section.stride, 0);
        self.copied.copy(first, &mut self.copy)?;
        // Read after the copy. A writer begins the record of event n only after it has counted all events before n. So
        // from this event on, no record was overwritten before it was copied.
        self.source.fence();
        let untouched = (self.published(ring)? + 1).saturating_sub(section.count as u64);
        for (index, record) in events.zip(self.copy.chunks_exact(section.stride)) {
            let finished = Some(seqlock::finished(index));
            let mut data = [0; words::EVENT - 1];
            let mut seq = Some(record[0]);
            data.copy_from_slice(&record[1..words::EVENT]);
            if index < untouched {
                // The record before it may still be whole; its sequence word is checked again. Older ones are gone.
                seq = None;
                if index + 1 == untouched {
                    let at = self.rings[ring].slot(index);
                    self.copied.changed(
                        &section,
                        at..at + 1,
                        |_| 0,
                        |_, record| {
                            (seq, data) = record.map_or((None, data), |(seq, data)| (Some(seq), data));
                        },
                    )?;
                }
            }
            if seq != finished {
                *lost += 1;
                continue;
            }
            let stored = Stored {
                event: codec::decode_event(lane, index, &data),
                follows: codec::follows(&data),
                order: codec::order(&data),
            };
            if see(&stored).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
