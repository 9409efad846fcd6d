//! Sums over free blocks, updated incrementally.

use crate::record::{Block, BlockState};

/// Blocks on each side that a replacement examines to find the free blocks it merges with. If there are more, the sums
/// are recomputed.
const NEAR: usize = 64;

/// Sums over free blocks, as if the blocks set aside ([`BlockState::Quick`]) were merged with their neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeSums {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes of the largest free block.
    pub largest: u64,
    /// Number of free blocks of that size.
    pub as_large: u64,
    /// Number of free blocks.
    pub count: u64,
}

/// Whether a block is free, including blocks set aside.
#[inline(always)]
fn is_free(block: &Block) -> bool {
    matches!(block.state, BlockState::Free | BlockState::Quick)
}

/// Whether two adjacent blocks are free and will be merged. At least one must be set aside: two ordinary free blocks
/// would already be merged if they could be. They belong to two streams, one of which has ended and passed its number
/// to the other.
#[inline(always)]
pub(super) fn join(left: &Block, right: &Block) -> bool {
    is_free(left)
        && is_free(right)
        && (left.state, right.state) != (BlockState::Free, BlockState::Free)
        && (left.stream, left.segment) == (right.stream, right.segment)
        && left.addr.checked_add(left.size) == Some(right.addr)
}

/// Returns the bytes of the free blocks at the beginning of `blocks` that merge with `block` and each other. Returns
/// `None` if there are too many.
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

/// Iterates over the bytes of each free block of `blocks`, which are in address order, as if the blocks set aside were
/// merged with their neighbours.
pub fn free_sizes(blocks: &[Block]) -> impl Iterator<Item = u64> {
    let runs = blocks.chunk_by(join).filter(|run| run.first().is_some_and(is_free));
    runs.map(|run| run.iter().fold(0u64, |bytes, block| bytes.saturating_add(block.size)))
}

impl FreeSums {
    /// Sums up the free blocks of `blocks`, which are in address order.
    pub fn of(blocks: &[Block]) -> FreeSums {
        let mut sums = FreeSums::default();
        free_sizes(blocks).for_each(|bytes| sums.add(bytes));
        sums
    }

    /// Returns the sums of both.
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

    /// Removes a free block. If `as_large` becomes 0, `largest` is too large and must be recomputed.
    #[inline]
    fn remove(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.count = self.count.saturating_sub(1);
        self.as_large = self.as_large.saturating_sub(u64::from(bytes == self.largest));
    }

    /// Adds block `at`, or removes it if not `more`, with the blocks it merges with. Returns false if these are too
    /// many.
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
