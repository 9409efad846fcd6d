//! How much may be taken from the driver: a limit that can change while the program runs.

use super::{Heap, collect, narrate};
use crate::error::Error;

impl Heap {
    pub(crate) fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// Sets the budget. What is reserved beyond it goes back as far as nothing uses it; the rest keeps the heap from growing until it
    /// is freed and given back. Errors when the driver fails on the way back; the budget holds all the same.
    pub(crate) fn set_budget(&mut self, budget: Option<u64>) -> Result<(), Error> {
        if budget == Some(0) {
            return Err(Error::Config {
                setting: "budget",
                reason: "0 bytes leave no room for anything; use None for no budget".to_owned(),
            });
        }
        self.budget = budget;
        self.collect_above = collect::threshold(self.collect_at, budget);
        let device = narrate::describe(self.driver.info(), budget);
        self.outlet.device(narrate::DEVICE, &device);
        if !self.capturing() && budget.is_some_and(|budget| self.ledger.reserved() > budget) {
            self.release_cached()?;
        }
        Ok(())
    }
}
