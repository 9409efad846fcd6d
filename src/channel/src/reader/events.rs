//! Events of one ring, read by copying what is new.

use std::ops::{ControlFlow, Range};

use super::Reader;
use super::rings::Ring;
use crate::cells::{self, Cell};
use crate::codec;
use crate::error::ReadError;
use crate::format::words;
use crate::record::Event;
use crate::seqlock;

/// Events that are copied at a time.
const AT_ONCE: u64 = 512;

/// An event as it is stored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stored {
    pub(super) event: Event,
    /// Whether what it does to the figures follows from it.
    pub(super) follows: bool,
    /// The number of the meeting of its writer with another that it came after.
    pub(super) order: u32,
}

impl Reader {
    /// Shows those of these events of a ring that it still holds, until `see` has seen enough and says so. Returns how many were lost.
    /// The end of the range was read as the count of events.
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
            // Not beyond the end of the ring: the rest is at its start.
            let to = head.min(next + AT_ONCE).min((next / count + 1) * count);
            if self.copy_events(ring, next..to, &mut lost, see)?.is_break() {
                break;
            }
            next = to;
        }
        Ok(lost)
    }

    /// The figures of a device: those of a cell, and what the events of that cell's writer did since; and whether all of them could be
    /// followed. `None` if these were overwritten meanwhile.
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

    /// Shows these events, whose records follow each other, and counts those that were lost.
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
        // After the copy. A writer touches the record of event n only once it has counted all before n: from this event on, no
        // record was touched again before it was copied.
        self.source.fence();
        let untouched = (self.published(ring)? + 1).saturating_sub(section.count as u64);
        for (index, record) in events.zip(self.copy.chunks_exact(section.stride)) {
            let finished = Some(seqlock::finished(index));
            let mut data = [0; words::EVENT - 1];
            let mut seq = Some(record[0]);
            data.copy_from_slice(&record[1..words::EVENT]);
            if index < untouched {
                // The last but one may still be whole, which takes a second look at its sequence word. The others are gone.
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
                event: codec::to_event(lane, index, &data),
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
