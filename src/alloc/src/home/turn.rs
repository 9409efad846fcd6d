//! The turn: one thread at a time maps memory, gives it back to the driver or moves it.

use std::sync::{MutexGuard, PoisonError};

use super::Home;
use crate::error::Error;
use crate::heap::{self, Access, Heap};

/// Who has the turn, and may call the driver for long. It holds the heap's lock only in between.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    home: &'a Home,
    _turn: MutexGuard<'a, ()>,
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

    pub(super) fn wait_for_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back what is left of pools that are gone.
    #[cold]
    #[inline(never)]
    pub(super) fn shrink_closing(&self) {
        // What the driver does not take stays for the next release. A forked child has nothing.
        let _ = self.turn().and_then(|mut turn| heap::shrink_closing(&mut turn));
    }
}
