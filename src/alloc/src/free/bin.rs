//! The free blocks of about one size, as numbers in the order of best fit.

use std::collections::BTreeSet;

/// No block: behind every other.
pub(super) const NONE: u128 = u128::MAX;

/// Whether a rank is none. A look at the half that says so: a half that was stored a moment ago is there at once, a whole made of two
/// stores is not.
#[inline(always)]
pub(super) fn is_none(rank: u128) -> bool {
    (rank >> 64) as u64 == u64::MAX
}

/// A bin: one line of the cache. Most hold no more than their first three, and those are put in order and taken out without a branch
/// that depends on where they are.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Bin {
    /// The smallest ones in order, then [`NONE`].
    first: [u128; 3],
    /// The others, once there have been any; none while there are less than three.
    more: Option<Box<More>>,
}

impl Default for Bin {
    fn default() -> Bin {
        Bin {
            first: [NONE; 3],
            more: None,
        }
    }
}

impl Bin {
    #[inline(always)]
    pub(super) fn insert(&mut self, rank: u128) {
        let [a, b, c] = self.first;
        if !is_none(c) {
            return self.insert_more(rank);
        }
        self.first = [a.min(rank), a.max(b.min(rank)), b.max(rank)];
    }

    #[inline(never)]
    fn insert_more(&mut self, rank: u128) {
        let [a, b, c] = self.first;
        self.first = [a.min(rank), a.max(b.min(rank)), b.max(c.min(rank))];
        self.more.get_or_insert_default().insert(c.max(rank));
    }

    /// Takes out what is in it.
    #[inline(always)]
    pub(super) fn remove(&mut self, rank: u128) {
        let [a, b, c] = self.first;
        if !is_none(c)
            && let Some(more) = &mut self.more
        {
            return remove_more(&mut self.first, more, rank);
        }
        self.first = [if rank == a { b } else { a }, if rank <= b { c } else { b }, NONE];
    }

    /// The smallest.
    #[inline(always)]
    pub(super) fn first(&self) -> u128 {
        self.first[0]
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        is_none(self.first[0])
    }

    /// The smallest that is no smaller.
    #[inline(always)]
    pub(super) fn first_from(&self, least: u128) -> u128 {
        let [a, b, c] = self.first;
        if c < least {
            return self.more.as_ref().map_or(NONE, |more| more.first_from(least));
        }
        self.first[usize::from(a < least) + usize::from(b < least)]
    }

    /// The largest.
    pub(super) fn last(&self) -> Option<u128> {
        let more = self.more.as_ref().and_then(|more| more.last());
        more.or_else(|| self.first.into_iter().rev().find(|rank| !is_none(*rank)))
    }

    /// Does something with each, the smallest first.
    #[inline(always)]
    pub(super) fn each(&self, mut work: impl FnMut(u128)) {
        self.first
            .into_iter()
            .filter(|rank| !is_none(*rank))
            .for_each(&mut work);
        if let Some(more) = &self.more {
            more.iter().for_each(work);
        }
    }
}

#[inline(never)]
fn remove_more(first: &mut [u128; 3], more: &mut More, rank: u128) {
    let [a, b, c] = *first;
    if rank > c {
        return more.remove(rank);
    }
    let next = more.pop_first().unwrap_or(NONE);
    *first = match rank {
        _ if rank == a => [b, c, next],
        _ if rank == b => [a, c, next],
        _ => [a, b, next],
    };
}

/// Ranks that are kept in a sorted list. A list moves few bytes where a tree takes and frees memory.
const LISTED: usize = 64;

/// The ranks of a bin that are larger than its first ones: the smaller ones last to first, then the others.
#[derive(Debug, Default)]
struct More {
    list: Vec<u128>,
    tree: BTreeSet<u128>,
}

impl More {
    fn insert(&mut self, rank: u128) {
        if self.list.len() < LISTED {
            let at = self.list.partition_point(|other| *other > rank);
            self.list.insert(at, rank);
            return;
        }
        let mut rank = rank;
        if rank < self.list[0] {
            let at = self.list.partition_point(|other| *other > rank);
            let largest = self.list[0];
            self.list.copy_within(1..at, 0);
            self.list[at - 1] = rank;
            rank = largest;
        }
        self.tree.insert(rank);
    }

    fn remove(&mut self, rank: u128) {
        let at = self.list.partition_point(|other| *other > rank);
        if self.list.get(at) == Some(&rank) {
            self.list.remove(at);
            self.refill();
        } else {
            self.tree.remove(&rank);
        }
    }

    fn pop_first(&mut self) -> Option<u128> {
        let first = self.list.pop();
        self.refill();
        first
    }

    /// All of the list is smaller than all of the tree; so it may only be short if the tree is empty.
    #[inline(always)]
    fn refill(&mut self) {
        if !self.tree.is_empty() {
            self.refill_from_tree();
        }
    }

    #[cold]
    fn refill_from_tree(&mut self) {
        if let Some(next) = self.tree.pop_first() {
            self.list.insert(0, next);
        }
    }

    fn first_from(&self, least: u128) -> u128 {
        match self.list.partition_point(|rank| *rank >= least) {
            0 => self.tree.range(least..).next().copied().unwrap_or(NONE),
            at => self.list[at - 1],
        }
    }

    fn last(&self) -> Option<u128> {
        self.tree.last().or_else(|| self.list.first()).copied()
    }

    fn iter(&self) -> impl Iterator<Item = u128> {
        self.list.iter().rev().chain(&self.tree).copied()
    }
}
