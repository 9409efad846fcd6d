//! Operations on a heap that nobody else uses.
#![allow(clippy::unwrap_used)]

use crate::error::Error;
use crate::heap::{CompactReport, Heap, JoinReport};
use crate::stream::Stream;

impl Heap {
    /// Gives a block back. What is left of pools that are gone [stays](Heap::has_closing).
    pub(crate) fn free(&mut self, b: u32) {
        self.take_back(b);
        self.run_errands();
    }

    pub(in crate::heap) fn run_errands(&mut self) {
        if let Some(errands) = self.take_errands() {
            crate::heap::run_errands(self, errands).unwrap();
        }
    }

    pub(in crate::heap) fn shrink_closing(&mut self) -> Result<u64, Error> {
        self.run_errands();
        match self.has_closing() {
            true => {
                let arenas = self.take_closing();
                crate::heap::shrink_closing(self, &arenas)
            }
            false => Ok(0),
        }
    }

    pub(in crate::heap) fn poll_pending(&mut self) {
        crate::heap::poll(self).unwrap();
        self.run_errands();
    }

    pub(in crate::heap) fn begin_capture(&mut self) {
        crate::heap::begin_capture(self).unwrap();
    }

    pub(crate) fn retire_stream(&mut self, stream: Stream) -> Result<(), Error> {
        let retired = crate::heap::retire_stream(self, stream);
        self.run_errands();
        retired
    }

    pub(in crate::heap) fn release_cached(&mut self) -> Result<u64, Error> {
        crate::heap::release_cached(self)
    }

    pub(in crate::heap) fn wait_for_device(&mut self) -> Result<(), Error> {
        crate::heap::turn::access::settle(self)
    }

    pub(in crate::heap) fn compact(&mut self) -> Result<CompactReport, Error> {
        crate::heap::compact(self)
    }

    pub(in crate::heap) fn join(&mut self, bytes: u64, stream: Stream) -> Result<JoinReport, Error> {
        crate::heap::join(self, bytes, stream)
    }

    pub(in crate::heap) fn set_budget(&mut self, budget: Option<u64>) -> Result<(), Error> {
        crate::heap::set_budget(self, budget)
    }
}
