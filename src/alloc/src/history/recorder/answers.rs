//! What is asked of a history.

use gpumem_channel::StringId;

use super::{Held, Peak, Recorder};
use crate::heap::Past;
use crate::history::HistoryFigures;
use crate::history::entry::Entry;
use crate::history::owners::{Grown, Owned};
use crate::stack::{self, Stack};

impl Recorder {
    /// A copy of the events and what they refer to.
    pub(crate) fn past(&self) -> Past {
        let (began, calendar) = self.began;
        Past {
            entries: self.ring.iter().copied().collect(),
            pieces: self.lists.all(),
            marks: self.marks.texts().to_vec(),
            dropped: self.dropped,
            calendar: calendar.saturating_sub(began),
        }
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = (u64, Held)> {
        self.live.iter().map(|(addr, held)| (*addr, *held))
    }

    /// Who allocated the block at an address that the program holds or queued work uses.
    pub(crate) fn stack_at(&self, addr: u64) -> Stack {
        let held = self.live.get(&addr).or_else(|| self.waiting.get(&addr));
        held.map_or(Stack::NONE, |held| self.owners.who(held.owner).1)
    }

    pub(crate) fn peak(&self) -> (Peak, Vec<(StringId, Stack, Owned)>) {
        let owners = self.owners.at_peak().map(|(number, owned)| {
            let (tag, stack) = self.owners.who(number);
            (tag, stack, owned)
        });
        (self.peak, owners.collect())
    }

    pub(crate) fn growth(&self, owner: u32) -> Option<Grown> {
        self.owners.growth(owner)
    }

    pub(crate) fn figures(&self) -> HistoryFigures {
        let (stacks, stack_bytes) = stack::kept();
        let ring = self.ring.capacity() * size_of::<Entry>();
        let live = (self.live.capacity() + self.waiting.capacity()) * size_of::<(u64, Held)>();
        HistoryFigures {
            events: self.ring.len() as u64,
            dropped: self.dropped,
            held: self.live.len() as u64,
            owners: self.owners.len() as u64,
            steps: self.steps,
            bytes: (ring + live + self.lists.bytes() + self.marks.bytes() + self.owners.bytes()) as u64,
            stacks,
            stack_bytes,
        }
    }

    /// Bytes held and taken from the driver, as the events tell.
    #[cfg(test)]
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.allocated, self.reserved)
    }
}
