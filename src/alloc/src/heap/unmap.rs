//! Views given up.

use super::Heap;
use super::view::{Stale, View};
use crate::error::DeviceError;

impl Heap {
    /// Unmaps the views that no block is in and that are known not to be used by queued work. Memory that is mapped anywhere is not free
    /// for the device, so an error means that nothing of the home segment can be given back now.
    pub(super) fn drop_idle_views(&mut self) -> Result<(), DeviceError> {
        let mut outcome = Ok(());
        for stale in std::mem::take(&mut self.views.stale) {
            outcome = outcome.and(self.give_range_back(stale));
        }
        let safe = |stream: u16| self.streams.line(stream).safe;
        let idle = self.views.idle().filter(|(_, view)| view.is_done(safe));
        let idle: Vec<u32> = idle.map(|(view, _)| view).collect();
        for view in idle {
            outcome = outcome.and(self.drop_view(view));
        }
        outcome
    }

    /// Makes room for another view, from those that are known not to be used by queued work.
    pub(super) fn limit_views(&mut self, mappings: usize) {
        if self.views.mappings + mappings <= self.views.most || self.capturing() {
            return;
        }
        let safe = |stream: u16| self.streams.line(stream).safe;
        let mut idle: Vec<(u64, u32)> = self
            .views
            .idle()
            .filter(|(_, view)| view.is_done(safe))
            .map(|(i, view)| (view.freed_at(), i))
            .collect();
        idle.sort_unstable();
        for (_, view) in idle {
            if self.views.mappings + mappings <= self.views.most / 2 {
                break;
            }
            // What fails is remembered.
            let _ = self.drop_view(view);
        }
    }

    fn drop_view(&mut self, view: u32) -> Result<(), DeviceError> {
        match self.views.remove(view) {
            Some(View {
                range, room, mapped, ..
            }) => self.give_range_back(Stale {
                range,
                bytes: room,
                mapped,
            }),
            None => Ok(()),
        }
    }

    /// Unmaps what is mapped in a range and gives the range back. What fails is tried again at the next release; an error is
    /// only what is still mapped.
    pub(super) fn give_range_back(&mut self, mut left: Stale) -> Result<(), DeviceError> {
        if left.mapped > 0 {
            if let Err(error) = self.driver.unmap(left.range, left.mapped) {
                self.views.stale.push(left);
                return Err(error);
            }
            left.mapped = 0;
        }
        if self.driver.unreserve(left.range, left.bytes).is_err() {
            self.views.stale.push(left);
        }
        Ok(())
    }

    /// Unmaps everything, at the end of the heap.
    pub(super) fn drop_all_views(&mut self) {
        for view in 0..self.views.slots.len() as u32 {
            let _ = self.drop_view(view);
        }
        let _ = self.drop_idle_views();
    }
}
