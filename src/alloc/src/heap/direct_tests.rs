//! Operations on a heap that nobody else uses.

use super::{Access, CompactReport, Heap, JoinReport};
use crate::error::Error;
use crate::stream::Stream;

impl Access for Heap {
    fn heap<R>(&mut self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        Ok(work(self))
    }
}

impl Heap {
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
