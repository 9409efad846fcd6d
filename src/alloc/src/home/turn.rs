//! The turn: one thread at a time maps memory, gives it back to the driver or moves it.

use super::Home;
use super::enter::ALL_STACKS;
use super::queue::Called;
use crate::error::Error;
use crate::heap::{self, Access, Errands, Heap};
use crate::stream::Stream;

/// A way to the heap for who asks the driver something, for which the turn is not needed.
#[derive(Debug)]
pub(crate) struct Way<'a>(&'a Home);

impl Access for Way<'_> {
    fn heap<R>(&mut self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        self.0.enter_for(ALL_STACKS, |tenant| work(&mut tenant.heap))
    }
}

/// Who has the turn, and may call the driver for long. It holds the heap's lock only in between.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    home: &'a Home,
    _turn: Called<'a>,
}

impl Access for Turn<'_> {
    fn heap<R>(&mut self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        self.home.with(work)
    }
}

impl Home {
    /// Waits for the turn. In a forked child it may be somebody's for ever who does not exist.
    pub(crate) fn turn(&self) -> Result<Turn<'_>, Error> {
        if !self.process.is_current() {
            return Err(Error::Forked);
        }
        Ok(Turn {
            home: self,
            _turn: self.wait_for_turn(),
        })
    }

    /// The same if the heap is still that of the tenant: then it is until the turn is over.
    pub(crate) fn turn_of(&self, tenant: u64) -> Option<Turn<'_>> {
        let turn = self.turn().ok()?;
        self.visit(tenant, |_| ()).map(|()| turn)
    }

    pub(super) fn wait_for_turn(&self) -> Called<'_> {
        self.turn.wait()
    }

    /// The heap, for who lets go of it to ask the driver something.
    pub(crate) fn way(&self) -> Way<'_> {
        Way(self)
    }

    /// Completes blocks that wait for other streams.
    pub(crate) fn poll(&self) -> Result<(), Error> {
        heap::poll(&mut self.way())?;
        self.give(|_| ())
    }

    /// A stream is about to be destroyed.
    pub(crate) fn retire_stream(&self, stream: Stream) -> Result<(), Error> {
        heap::retire_stream(&mut self.way(), stream)?;
        self.give(|_| ())
    }

    /// Does what was left to be done when the heap's lock was let go of.
    #[cold]
    #[inline(never)]
    pub(super) fn run_errands(&self, errands: Box<Errands>) {
        let closing = heap::run_errands(&mut self.way(), errands);
        // A forked child has nothing.
        let Ok(closing) = closing else { return };
        if !closing.is_empty() {
            // What the driver does not take stays for the next release.
            let _ = self
                .turn()
                .and_then(|mut turn| heap::shrink_closing(&mut turn, &closing));
        }
    }
}
