//! The free blocks of about one size, as numbers in the order of best fit.

use std::collections::BTreeSet;
use std::hint::select_unpredictable;

/// No block: behind every other.
pub(super) const NONE: u128 = u128::MAX;

/// Whether a rank is none. A look at the half that says so: a half that was stored a moment ago is there at once, a whole made of two
/// stores is not.
#[inline(always)]
pub(super) fn is_none(rank: u128) -> bool {
    (rank >> 64) as u64 == u64::MAX
}

/// One of two, without a branch: half by half, as a whole it becomes one.
#[inline(always)]
pub(super) fn choose(first: bool, one: u128, other: u128) -> u128 {
    let high = select_unpredictable(first, (one >> 64) as u64, (other >> 64) as u64);
    let low = select_unpredictable(first, one as u64, other as u64);
    u128::from(high) << 64 | u128::from(low)
}

/// Puts the last one of a list, which has so many without it, in the place of another. That one.
#[inline(always)]
fn put_last_in(list: &mut [u128], place: u8, left: u8) -> u128 {
    let (place, left) = (usize::from(place), usize::from(left));
    let last = list[left];
    list[place] = last;
    list[left] = NONE;
    last
}

/// Most ranks that are kept in a list: looking through it must not take long.
const LISTED: usize = if cfg!(test) { 4 } else { 64 };
/// How many are looked at at a time, and the room of the shortest list.
const STRIDE: usize = if cfg!(test) { 2 } else { 4 };
/// The place of those that are not in it.
const IN_TREE: u8 = 64;
/// Added to the number of those that are, while others are in the tree.
const OTHERS: u8 = 128;
const _: () = assert!(LISTED <= IN_TREE as usize);

/// A bin: one line of the cache. Most blocks are taken out because a neighbour took them in, whatever their rank is. So they are kept in no
/// order, where one is put in and taken out without a branch that depends on which it is, and the smallest is looked for when somebody
/// asks for it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Bin {
    /// The smallest of all. Of one or none it is known.
    first: u128,
    /// Whether it is not: it was taken out, and no other is smaller.
    unknown: bool,
    /// How many of the list are taken, from its beginning on; and [`OTHERS`].
    listed: u8,
    /// All others are [`NONE`]. Most bins never have more than a few: it grows.
    list: Box<[u128]>,
    /// Those that came while the list was full.
    tree: BTreeSet<u128>,
}

impl Default for Bin {
    fn default() -> Bin {
        Bin {
            first: NONE,
            unknown: false,
            listed: 0,
            list: Box::default(),
            tree: BTreeSet::new(),
        }
    }
}

impl Bin {
    /// Adds one, unless there is no room in the list. Its place, by which it is taken out.
    #[inline(always)]
    pub(super) fn insert(&mut self, rank: u128) -> Option<u8> {
        let place = self.listed;
        *self.list.get_mut(usize::from(place))? = rank;
        self.first = self.first.min(rank);
        self.listed = place + 1;
        Some(place)
    }

    /// The same where there is none, or where others are in the tree.
    pub(super) fn insert_further(&mut self, rank: u128) -> u8 {
        let place = self.listed % OTHERS;
        let room = self.list.len();
        if usize::from(place) == room && room < LISTED {
            let mut longer = std::mem::take(&mut self.list).into_vec();
            longer.resize((2 * room).max(STRIDE), NONE);
            self.list = longer.into_boxed_slice();
        }
        self.first = self.first.min(rank);
        if let Some(free) = self.list.get_mut(usize::from(place)) {
            *free = rank;
            self.listed += 1;
            return place;
        }
        self.tree.insert(rank);
        self.listed |= OTHERS;
        IN_TREE
    }

    /// Takes out the one at a place. The one that has this place now, or else itself.
    #[inline(always)]
    pub(super) fn remove(&mut self, rank: u128, place: u8) -> u128 {
        let left = self.listed.wrapping_sub(1);
        if usize::from(left) >= self.list.len() {
            return self.remove_with_tree(rank, place);
        }
        self.listed = left;
        let last = put_last_in(&mut self.list, place, left);
        // By the slot alone, which is no other's.
        let unknown = self.unknown | (rank as u32 == self.first as u32);
        let few = left <= 1;
        self.unknown = unknown & !few;
        self.first = choose(few, self.list[0], self.first);
        last
    }

    #[inline(never)]
    fn remove_with_tree(&mut self, rank: u128, place: u8) -> u128 {
        self.unknown |= rank == self.first;
        if place != IN_TREE {
            self.listed -= 1;
            let left = self.listed % OTHERS;
            return put_last_in(&mut self.list, place, left);
        }
        self.tree.remove(&rank);
        if self.tree.is_empty() {
            self.listed %= OTHERS;
        }
        if self.unknown {
            self.find_first();
        }
        rank
    }

    /// The smallest.
    #[inline(always)]
    pub(super) fn first(&mut self) -> u128 {
        if self.unknown {
            self.find_first();
        }
        self.first
    }

    fn find_first(&mut self) {
        self.first = self.look(0);
        self.unknown = false;
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.listed == 0
    }

    /// The smallest that is no smaller.
    #[inline(always)]
    pub(super) fn first_from(&self, least: u128) -> u128 {
        let fits = (self.first >= least) & !self.unknown;
        // One that does not fit is not looked at again.
        if fits | (self.listed == 1) {
            return if fits { self.first } else { NONE };
        }
        self.look(least)
    }

    #[inline(never)]
    fn look(&self, least: u128) -> u128 {
        // Those that are smaller come to be the largest.
        let beyond = |rank: u128| rank.wrapping_sub(least);
        let mut first = beyond(NONE);
        // A few more than there are: how many that is is not easily guessed.
        let strides = usize::from(self.listed % OTHERS).div_ceil(STRIDE);
        for ranks in self.list.as_chunks::<STRIDE>().0.iter().take(strides) {
            first = ranks.iter().fold(first, |first, rank| first.min(beyond(*rank)));
        }
        let first = first.wrapping_add(least);
        if self.listed < OTHERS {
            first
        } else {
            first.min(self.look_in_tree(least))
        }
    }

    #[cold]
    #[inline(never)]
    fn look_in_tree(&self, least: u128) -> u128 {
        self.tree.range(least..).next().copied().unwrap_or(NONE)
    }

    #[inline(always)]
    fn listed(&self) -> &[u128] {
        &self.list[..usize::from(self.listed % OTHERS)]
    }

    /// The largest.
    pub(super) fn last(&self) -> Option<u128> {
        self.listed().iter().chain(self.tree.last()).max().copied()
    }

    /// Does something with each, in no order; where others are in the tree with the largest, one after the other while more are wanted.
    pub(super) fn each_of_largest(&self, wants_more: impl Fn() -> bool, mut work: impl FnMut(u128)) {
        if self.listed < OTHERS {
            return self.listed().iter().copied().for_each(work);
        }
        let mut listed = self.listed().to_vec();
        listed.sort_unstable();
        let mut others = self.tree.iter().rev().copied().peekable();
        while wants_more() {
            let next = match others.peek() > listed.last() {
                true => others.next(),
                false => listed.pop(),
            };
            let Some(rank) = next else { break };
            work(rank);
        }
    }

    /// Does something with each, in no order.
    #[inline(always)]
    pub(super) fn each(&self, mut work: impl FnMut(u128)) {
        self.listed().iter().copied().for_each(&mut work);
        if self.listed >= OTHERS {
            self.tree.iter().copied().for_each(work);
        }
    }
}
