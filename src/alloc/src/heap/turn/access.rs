//! Operations that call the driver and let go of the heap for that.
//!
//! Who calls it for long has the *turn*: one thread at a time maps, gives back or moves memory. Everything else goes on meanwhile.

use std::sync::Arc;

use crate::error::Error;
use crate::heap::Heap;
use crate::heap::release::going::{self, Going};

/// A way to the heap, to be let go of in between.
pub(crate) trait Access {
    /// Does something with the heap, which is locked for so long.
    fn heap<R>(&mut self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error>;
}

/// Of who lets nobody else in between.
impl Access for Heap {
    fn heap<R>(&mut self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        Ok(work(self))
    }
}

/// Waits for the device: afterwards no queued work uses anything that was given back before.
pub(in crate::heap) fn settle(on: &mut impl Access) -> Result<(), Error> {
    let (driver, frees) = on.heap(|heap| {
        heap.mark_wait();
        (Arc::clone(&heap.driver), heap.frees)
    })?;
    driver.synchronize()?;
    on.heap(|heap| heap.settled(frees))
}

/// The same, unless a graph is captured: the capture would end by it.
pub(crate) fn wait_for_device(on: &mut impl Access) -> Result<(), Error> {
    on.heap(|heap| heap.not_capturing())??;
    settle(on)
}

/// Gives back to the driver what is chosen. The bytes that came free; the first failure is returned after everything was tried.
pub(in crate::heap) fn give_back(
    on: &mut impl Access,
    choose: impl FnOnce(&mut Heap) -> Vec<Going>,
) -> Result<u64, Error> {
    let (driver, going) = on.heap(|heap| {
        let mut going = choose(heap);
        heap.set_apart(&mut going);
        (Arc::clone(&heap.driver), going)
    })?;
    let mut went = going::give_back(going, &*driver);
    let error = went.error.take();
    let freed = on.heap(|heap| heap.account_for(went))?;
    error.map_or(Ok(freed), |error| Err(error.into()))
}
