//! Whether what a channel says of a device can be true. What is read while its writers go on need not be of one moment: nobody is accused
//! of what only the reading of it may have made.

use std::ops::ControlFlow;

use super::Reader;
use crate::error::ReadError;
use crate::record::EventKind;
use crate::snapshot::{DeviceMap, Snapshot};

/// Readings in a row with figures that contradict themselves after which it does not matter that none was of one moment: who publishes on
/// a lane without end would never be found out.
const DOUBTS: u8 = 3;

impl Reader {
    /// Notes which devices' figures contradict themselves.
    pub(super) fn check_figures(&mut self, snapshot: &mut Snapshot) {
        self.doubts.resize(snapshot.devices.len(), 0);
        for (map, doubts) in snapshot.devices.iter_mut().zip(&mut self.doubts) {
            let found = map.stats.as_ref().and_then(|stats| stats.contradiction());
            *doubts = if found.is_some() { doubts.saturating_add(1) } else { 0 };
            map.contradiction = found.filter(|_| self.of_one_moment || *doubts >= DOUBTS);
        }
    }

    /// Notes which devices have more bytes in free blocks than are cached. `events`: how many there were before the blocks were read.
    pub(super) fn check_free(&mut self, snapshot: &mut Snapshot, events: u64) -> Result<(), ReadError> {
        let still = self.of_one_moment && snapshot.lagging_segments == 0 && snapshot.event_count == events;
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

    /// Bytes of each device that its writers may just be moving: an event comes first, its block and its figures follow one after the
    /// other, and a block is free before the figures say so, or after. A writer that was stopped or killed there stays there.
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
