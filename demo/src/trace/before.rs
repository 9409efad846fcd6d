//! Blocks that were live before a recording began: the recording frees them but does not allocate them.

use std::collections::HashSet;

use super::Op;
use super::builder::Wrong;
use super::spread::Key;

/// The most freed addresses that are remembered. Once there are more, a free of an unknown block is no longer taken for one
/// that is older than the recording, because it may be a second free.
const MOST_FREED: usize = 4 << 20;

/// The blocks known so far.
#[derive(Default)]
pub(super) struct Before {
    /// Their allocations, with their addresses.
    blocks: Vec<(u64, Op)>,
    /// All freed addresses, whenever their blocks were allocated.
    freed: HashSet<u64, Key>,
}

impl Before {
    /// Returns the number of blocks.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Checks whether a free of a block that is not live may be of an older one. Otherwise it is a second free.
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

    /// Returns their allocations in the order of their addresses. The order in which they were made is unknown.
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
    fn frees_beyond_the_limit_are_not_taken_for_older() {
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
