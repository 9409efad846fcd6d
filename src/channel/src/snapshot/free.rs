//! Sums over free blocks that follow every change of one.

use crate::record::{Block, BlockState};

/// Blocks on each side that a replacement looks at to find out what joins what. Beyond that everything is counted anew.
const NEAR: usize = 64;

/// Sums over free blocks, as they are once what is set aside ([`BlockState::Quick`]) has joined its neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeSums {
    /// Bytes.
    pub bytes: u64,
    /// Bytes of the largest.
    pub largest: u64,
    /// How many are as large.
    pub as_large: u64,
    /// Number.
    pub count: u64,
}

/// Whether a block is free, set aside or not.
#[inline(always)]
fn is_free(block: &Block) -> bool {
    matches!(block.state, BlockState::Free | BlockState::Quick)
}

/// Whether two blocks in the order of addresses are free and become one. What could join by itself has: two that are set aside neither of
/// them are of two streams, one of which has ended and left the other its name.
#[inline(always)]
pub(super) fn join(left: &Block, right: &Block) -> bool {
    is_free(left)
        && is_free(right)
        && (left.state, right.state) != (BlockState::Free, BlockState::Free)
        && (left.stream, left.segment) == (right.stream, right.segment)
        && left.addr.checked_add(left.size) == Some(right.addr)
}

/// Bytes of the free blocks at the beginning of `blocks`, in the order they are in, that join `block` and each other. `None`: too
/// many.
#[inline]
fn joining<'a>(
    mut block: &'a Block,
    blocks: impl Iterator<Item = &'a Block>,
    join: impl Fn(&Block, &Block) -> bool,
) -> Option<u64> {
    let mut bytes = 0u64;
    for (n, next) in blocks.enumerate() {
        if !join(block, next) {
            break;
        }
        if n == NEAR {
            return None;
        }
        bytes = bytes.saturating_add(next.size);
        block = next;
    }
    Some(bytes)
}

/// Bytes of each free block among `blocks`, which are in the order of their addresses, once what is set aside has joined its
/// neighbours.
pub fn free_sizes(blocks: &[Block]) -> impl Iterator<Item = u64> {
    let runs = blocks.chunk_by(join).filter(|run| run.first().is_some_and(is_free));
    runs.map(|run| run.iter().fold(0u64, |bytes, block| bytes.saturating_add(block.size)))
}

impl FreeSums {
    /// Sums up the free ones among `blocks`, which are in the order of their addresses.
    pub fn of(blocks: &[Block]) -> FreeSums {
        let mut sums = FreeSums::default();
        free_sizes(blocks).for_each(|bytes| sums.add(bytes));
        sums
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: FreeSums) -> FreeSums {
        let largest = self.largest.max(other.largest);
        let as_large = |sums: FreeSums| if sums.largest == largest { sums.as_large } else { 0 };
        FreeSums {
            bytes: self.bytes.saturating_add(other.bytes),
            largest,
            as_large: as_large(self) + as_large(other),
            count: self.count + other.count,
        }
    }

    #[inline]
    fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.count += 1;
        if bytes > self.largest {
            (self.largest, self.as_large) = (bytes, 0);
        }
        self.as_large += u64::from(bytes == self.largest);
    }

    /// Without one as large as the largest (`as_large` is 0) `largest` is too much.
    #[inline]
    fn remove(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.count = self.count.saturating_sub(1);
        self.as_large = self.as_large.saturating_sub(u64::from(bytes == self.largest));
    }

    /// Counts block `at` in, or out if not `more`, with what it joins. `false`: that is too many.
    #[inline]
    pub(super) fn count(&mut self, blocks: &[Block], at: usize, more: bool) -> bool {
        let (before, [block, after @ ..]) = blocks.split_at(at) else {
            return true;
        };
        if !is_free(block) {
            return true;
        }
        let left = joining(block, before.iter().rev(), |block, next| join(next, block));
        let right = joining(block, after.iter(), join);
        let (Some(left), Some(right)) = (left, right) else {
            return false;
        };
        let whole = left.saturating_add(block.size).saturating_add(right);
        if more {
            [left, right]
                .into_iter()
                .filter(|n| *n > 0)
                .for_each(|n| self.remove(n));
            self.add(whole);
        } else {
            self.remove(whole);
            [left, right].into_iter().filter(|n| *n > 0).for_each(|n| self.add(n));
        }
        true
    }
}
