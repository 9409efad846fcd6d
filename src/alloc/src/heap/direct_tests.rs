//! Operations on a heap that nobody else uses.
#![allow(clippy::unwrap_used)]

use super::{CompactReport, Heap, JoinReport};
use crate::error::Error;
use crate::stream::Stream;

impl Heap {
    /// Gives a block back. What is left of pools that are gone stays [due](Heap::is_due).
    pub(crate) fn free(&mut self, b: u32) {
        self.take_back(b);
        self.run_errands();
    }

    /// Whether errands are left.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    pub(super) fn run_errands(&mut self) {
        if let Some(errands) = self.take_errands() {
            for arena in super::run_errands(self, errands).unwrap() {
                self.leave_closing(arena);
            }
        }
    }

    pub(super) fn shrink_closing(&mut self) -> Result<u64, Error> {
        match self.take_errands() {
            Some(errands) => {
                let arenas = super::run_errands(self, errands).unwrap();
                super::shrink_closing(self, &arenas)
            }
            None => Ok(0),
        }
    }

    pub(super) fn poll_pending(&mut self) {
        super::poll(self).unwrap();
        self.run_errands();
    }

    pub(super) fn begin_capture(&mut self) {
        super::begin_capture(self).unwrap();
    }

    pub(crate) fn retire_stream(&mut self, stream: Stream) -> Result<(), Error> {
        let retired = super::retire_stream(self, stream);
        self.run_errands();
        retired
    }

    pub(super) fn release_cached(&mut self) -> Result<u64, Error> {
        super::release_cached(self)
    }

    pub(super) fn wait_for_device(&mut self) -> Result<(), Error> {
        super::access::settle(self)
    }

    pub(super) fn compact(&mut self) -> Result<CompactReport, Error> {
        super::compact(self)
    }

    pub(super) fn join(&mut self, bytes: u64, stream: Stream) -> Result<JoinReport, Error> {
        super::join(self, bytes, stream)
    }

    pub(super) fn set_budget(&mut self, budget: Option<u64>) -> Result<(), Error> {
        super::set_budget(self, budget)
    }
}
