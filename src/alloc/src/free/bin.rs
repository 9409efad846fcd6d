//! The free blocks of about one size, as numbers in the order of best fit.

use std::collections::BTreeSet;
use std::hint::select_unpredictable;

/// No block: behind every other.
pub(super) const NONE: u128 = u128::MAX;

/// In the place of the smallest: it is not known. Before every other.
const UNKNOWN: u128 = 0;

/// Whether a rank is none. A look at the half that says so: a half that was stored a moment ago is there at once, a whole made of two
/// stores is not.
#[inline(always)]
pub(super) fn is_none(rank: u128) -> bool {
    (rank >> 64) as u64 == u64::MAX
}

/// Ranks that are kept in a list: looking through it must not take long.
const LISTED: usize = if cfg!(test) { 4 } else { 64 };
/// The place of those that are not.
const IN_TREE: u8 = u8::MAX;
const _: () = assert!(LISTED <= IN_TREE as usize);

/// A bin: one line of the cache. Most blocks are taken out because a neighbour took them in, whatever their rank is. So they are kept in no
/// order, where one is put in and taken out without a branch that depends on which it is, and the smallest is looked for when somebody
/// asks for it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Bin {
    /// The smallest of all. Of one or none it is known.
    first: u128,
    list: Vec<u128>,
    /// Those that came while the list was full.
    tree: BTreeSet<u128>,
}

impl Default for Bin {
    fn default() -> Bin {
        Bin {
            first: NONE,
            list: Vec::new(),
            tree: BTreeSet::new(),
        }
    }
}

impl Bin {
    /// Adds one. Its place, by which it is taken out.
    #[inline(always)]
    pub(super) fn insert(&mut self, rank: u128) -> u8 {
        self.first = self.first.min(rank);
        let place = self.list.len();
        if place == LISTED {
            return self.insert_in_tree(rank);
        }
        self.list.push(rank);
        place as u8
    }

    #[cold]
    #[inline(never)]
    fn insert_in_tree(&mut self, rank: u128) -> u8 {
        self.tree.insert(rank);
        IN_TREE
    }

    /// Takes out the one at a place. The one that has this place now, or else itself.
    #[inline(always)]
    pub(super) fn remove(&mut self, rank: u128, place: u8) -> u128 {
        if !self.tree.is_empty() {
            return self.remove_with_tree(rank, place);
        }
        let last = self.put_last_in(place);
        let left = self.list.len() - 1;
        let first = select_unpredictable(rank == self.first, UNKNOWN, self.first);
        let first = select_unpredictable(left == 1, self.list[0], first);
        self.first = select_unpredictable(left == 0, NONE, first);
        self.list.truncate(left);
        last
    }

    /// Puts the last one in the place of another, which is no more in the list but for its last place.
    #[inline(always)]
    fn put_last_in(&mut self, place: u8) -> u128 {
        let last = self.list[self.list.len() - 1];
        self.list[usize::from(place)] = last;
        last
    }

    #[inline(never)]
    fn remove_with_tree(&mut self, rank: u128, place: u8) -> u128 {
        if place != IN_TREE {
            self.first = if rank == self.first { UNKNOWN } else { self.first };
            let last = self.put_last_in(place);
            self.list.pop();
            return last;
        }
        self.tree.remove(&rank);
        if rank == self.first || self.list.len() <= 1 {
            self.first = self.look(0);
        }
        rank
    }

    /// The smallest.
    #[inline(always)]
    pub(super) fn first(&mut self) -> u128 {
        if self.first == UNKNOWN {
            self.first = self.look(0);
        }
        self.first
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        is_none(self.first)
    }

    /// The smallest that is no smaller.
    #[inline(always)]
    pub(super) fn first_from(&self, least: u128) -> u128 {
        let fits = self.first >= least;
        // One that does not fit is not looked at again.
        if fits | (self.list.len() == 1) & self.tree.is_empty() {
            return if fits { self.first } else { NONE };
        }
        self.look(least)
    }

    #[inline(never)]
    fn look(&self, least: u128) -> u128 {
        let listed = self.list.iter().copied().filter(|rank| *rank >= least).min();
        let other = self.tree.range(least..).next().copied();
        listed.unwrap_or(NONE).min(other.unwrap_or(NONE))
    }

    /// The largest.
    pub(super) fn last(&self) -> Option<u128> {
        self.list.iter().chain(self.tree.last()).max().copied()
    }

    /// Does something with each, in no order.
    #[inline(always)]
    pub(super) fn each(&self, work: impl FnMut(u128)) {
        self.list.iter().chain(&self.tree).copied().for_each(work);
    }
}
