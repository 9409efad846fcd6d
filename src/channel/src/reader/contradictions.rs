//! Checks whether the figures of a device can be true. Figures that are read while their writers continue may be of
//! different moments, so a contradiction is reported only if the reading cannot have caused it.

use std::ops::ControlFlow;

use super::Reader;
use crate::error::ReadError;
use crate::record::EventKind;
use crate::snapshot::{DeviceMap, Snapshot};

/// Number of successive contradictory reads after which a contradiction is reported even if none of them was of one
/// moment. Otherwise a publisher whose lane never pauses would never be reported.
const DOUBTS: u8 = 3;

impl Reader {
    /// Marks devices whose figures contradict themselves.
    pub(super) fn check_figures(&mut self, snapshot: &mut Snapshot) {
        self.doubts.resize(snapshot.devices.len(), 0);
        for (map, doubts) in snapshot.devices.iter_mut().zip(&mut self.doubts) {
            let found = map.stats.as_ref().and_then(|stats| stats.contradiction());
            *doubts = if found.is_some() { doubts.saturating_add(1) } else { 0 };
            map.contradiction = found.filter(|_| self.of_one_moment || *doubts >= DOUBTS);
        }
    }

    /// Marks devices with more bytes in free blocks than are cached. `events` is the number of events before the blocks
    /// were read.
    pub(super) fn check_free(&mut self, snapshot: &mut Snapshot, events: u64) -> Result<(), ReadError> {
        // What was sampled of another allocator is of different moments.
        let still = snapshot.sampled.is_none()
            && self.of_one_moment
            && snapshot.lagging_segments == 0
            && snapshot.event_count == events;
        let suspect = |map: &DeviceMap| {
            let cached = map.stats.filter(|_| map.contradiction.is_none())?.cached_bytes();
            map.free().bytes.checked_sub(cached).filter(|&over| over > 0)
        };
        if !still || !snapshot.devices.iter().any(|map| suspect(map).is_some()) {
            return Ok(());
        }
        let begun = self.begun(snapshot.devices.len())?;
        for (map, begun) in snapshot.devices.iter_mut().zip(begun) {
            if suspect(map).is_some_and(|over| over > begun) {
                map.contradiction = Some("its free blocks are more than it has cached");
            }
        }
        Ok(())
    }

    /// Returns the bytes of each device that its writers may be moving right now. An event is published first, then its
    /// block and its figures, so a block can be free before or after the figures say so. A writer that was stopped or
    /// killed in between stays in that state.
    fn begun(&mut self, devices: usize) -> Result<Vec<u64>, ReadError> {
        let mut begun = vec![0u64; devices];
        for ring in 0..self.rings.len() {
            let count = self.published(ring)?;
            self.events_in(ring, count.saturating_sub(1)..count, &mut |stored| {
                let event = &stored.event;
                let moves = matches!(
                    event.kind,
                    EventKind::Alloc
                        | EventKind::Free
                        | EventKind::FreeCompleted
                        | EventKind::SegmentAlloc
                        | EventKind::SegmentMap
                );
                if let Some(begun) = begun.get_mut(usize::from(event.device)).filter(|_| moves) {
                    *begun = begun.saturating_add(event.size);
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(begun)
    }
}
