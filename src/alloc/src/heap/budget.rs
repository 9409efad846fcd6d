//! How much may be taken from the driver: a limit that can change while the program runs.

use super::release::release_cached;
use super::turn::access::Access;
use super::{Heap, narrate};
use crate::error::Error;

impl Heap {
    pub(crate) fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// Sets the budget. Whether more is reserved and may go back.
    fn set_budget_only(&mut self, budget: Option<u64>) -> bool {
        self.budget = budget;
        let device = narrate::describe(self.driver.info(), budget);
        self.outlet.device(&device);
        !self.capturing() && budget.is_some_and(|budget| self.ledger.reserved() > budget)
    }
}

/// Sets the budget. What is reserved beyond it goes back as far as nothing uses it; the rest keeps the heap from growing until it is freed
/// and given back. Errors when the driver fails on the way back; the budget holds all the same.
pub(crate) fn set_budget(on: &mut impl Access, budget: Option<u64>) -> Result<(), Error> {
    if budget == Some(0) {
        return Err(Error::Config {
            setting: "budget",
            reason: "0 bytes leave no room for anything; use None for no budget".to_owned(),
        });
    }
    if on.heap(|heap| heap.set_budget_only(budget))? {
        release_cached(on)?;
    }
    Ok(())
}
