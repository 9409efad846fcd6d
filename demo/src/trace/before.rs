//! Blocks that were live before a recording began: it frees them and never allocated them.

use std::collections::HashSet;

use super::Op;
use super::builder::Wrong;
use super::spread::Key;

/// Most addresses that are remembered as freed. Beyond them what is not live is not taken for older than the recording: it may have been
/// freed before.
const MOST_FREED: usize = 4 << 20;

/// The blocks known so far.
#[derive(Default)]
pub(super) struct Before {
    /// Their allocations, with their addresses.
    blocks: Vec<(u64, Op)>,
    /// What was freed, whenever it was allocated.
    freed: HashSet<u64, Key>,
}

impl Before {
    /// How many they are.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether what is not live, and is freed, may be one of them; otherwise it is freed twice.
    pub(super) fn may_have(&self, id: u64) -> bool {
        self.freed.len() < MOST_FREED && !self.freed.contains(&id)
    }

    pub(super) fn push(&mut self, id: u64, alloc: Op) -> Result<(), Wrong> {
        self.blocks.try_reserve(1)?;
        self.blocks.push((id, alloc));
        Ok(())
    }

    /// Remembers a free.
    pub(super) fn freed(&mut self, id: u64) -> Result<(), Wrong> {
        if self.freed.len() < MOST_FREED {
            self.freed.try_reserve(1)?;
            self.freed.insert(id);
        }
        Ok(())
    }

    /// Their allocations in the order of their addresses: in which they were made nobody knows.
    pub(super) fn allocs(mut self) -> impl Iterator<Item = Op> {
        self.blocks.sort_unstable_by_key(|(id, _)| *id);
        self.blocks.into_iter().map(|(_, alloc)| alloc)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_cannot_be_remembered_is_not_taken_for_older() {
        let mut before = Before {
            freed: (1..MOST_FREED as u64).collect(),
            ..Before::default()
        };
        assert!(before.may_have(u64::MAX) && !before.may_have(1));
        before.freed(0).unwrap();
        before.freed(u64::MAX).unwrap();
        assert!(!before.may_have(u64::MAX) && before.freed.len() == MOST_FREED);
    }
}
