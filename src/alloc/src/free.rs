//! Best fit: the free blocks of one stream and class, by size and then by address.
//!
//! Sizes fall into bins of 1/16 octave; a bitmap finds the next bin that has something. Which bin that is and where in it a block goes
//! is different every time in a program of random sizes, and a wrong guess of the processor's costs more than the work itself: so
//! what can be is computed without branches.

mod bin;

use std::cell::Cell;

use crate::size::MIN_BLOCK;
use bin::{Bin, NONE, choose, is_none};

/// Bins for sizes up to 2^48 bytes.
const BINS: usize = 40 * 16;
/// One more bit is always set, that of a bin that there never is: a search ends there.
const WORDS: usize = BINS / 64 + 1;

/// A free block: the order is best fit, then lowest address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) size: u64,
    pub(crate) addr: u64,
    pub(crate) block: u32,
}

/// Bins that the lowest of "little larger" blocks is looked for in: a quarter of an octave where all of them have some. Twice as many find
/// no better places, and take longer.
const LOW_BINS: usize = 4;

/// Drivers align what they give to 2 to the power of this at least.
const ALIGNMENT: u32 = 8;

impl Key {
    /// The same in one number with the same order: 40 bits of size, 56 of address, 32 of slot.
    #[inline(always)]
    fn rank(self) -> u128 {
        debug_assert!(self.size.is_multiple_of(MIN_BLOCK) && self.addr.trailing_zeros() >= ALIGNMENT);
        u128::from(self.size / MIN_BLOCK) << 88 | u128::from(self.addr >> ALIGNMENT) << 32 | u128::from(self.block)
    }

    #[inline(always)]
    fn of(rank: u128) -> Key {
        Key {
            size: (rank >> 88) as u64 * MIN_BLOCK,
            addr: addr_of(rank),
            block: rank as u32,
        }
    }
}

/// A block that was found, or none: a rank, which is passed on in registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found(u128);

impl Found {
    #[inline(always)]
    pub(crate) fn key(self) -> Option<Key> {
        (!is_none(self.0)).then(|| Key::of(self.0))
    }

    /// What [`low_fit`](FreeIndex::low_fit) takes the least of, for `size` bytes.
    #[inline(always)]
    fn low(self, size: u64) -> (bool, u64) {
        (Key::of(self.0).size != size, addr_of(self.0))
    }
}

/// The address of a rank; that of none is behind all.
#[inline(always)]
fn addr_of(rank: u128) -> u64 {
    ((rank >> 32) as u64) << ALIGNMENT
}

/// The smallest rank of a block of at least `size` bytes.
#[inline(always)]
fn least(size: u64) -> u128 {
    u128::from((size + (MIN_BLOCK - 1)) >> MIN_BLOCK.trailing_zeros()) << 88
}

/// The free blocks of an allocator, pending ones not among them. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FreeBlocks {
    /// All of them together.
    pub total: u64,
    /// The largest.
    pub largest: u64,
    /// How many there are.
    pub count: u64,
}

impl FreeBlocks {
    /// External fragmentation, from 0 to 1: 1 - largest / total. `None` when nothing is free. Where there are pools, one request cannot have
    /// all of that, and a [monitor](crate::Measure::External) looks at each pool apart.
    pub fn fragmentation(&self) -> Option<f64> {
        (self.total > 0).then(|| 1.0 - self.largest as f64 / self.total as f64)
    }
}

/// Where a block is in its index: its bin, and the place there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    bin: u16,
    at: u8,
}

/// The free blocks of one stream and class.
#[derive(Debug)]
pub(crate) struct FreeIndex {
    len: usize,
    /// Of all its blocks together.
    bytes: u64,
    occupied: [u64; WORDS],
    /// Up to the largest that ever had something, and of these only those that did: there may be thousands of streams of few sizes.
    bins: Vec<Option<Box<Bin>>>,
}

/// 16 to the octave, from 32 units on; before that one for every unit.
#[inline(always)]
fn bin_of(size: u64) -> usize {
    let units = size / MIN_BLOCK;
    let octave = 59 - (units | 16).leading_zeros();
    16 * octave as usize + (units >> octave) as usize
}

impl FreeIndex {
    pub(crate) fn new() -> FreeIndex {
        let mut occupied = [0; WORDS];
        occupied[BINS / 64] = 1;
        FreeIndex {
            len: 0,
            bytes: 0,
            occupied,
            bins: Vec::new(),
        }
    }

    #[inline(always)]
    fn bin(&self, at: usize) -> Option<&Bin> {
        self.bins.get(at)?.as_deref()
    }

    #[inline(always)]
    fn bin_mut(&mut self, at: usize) -> Option<&mut Bin> {
        self.bins.get_mut(at)?.as_deref_mut()
    }

    /// Adds a key. Its place, by which it is taken out.
    #[inline(always)]
    pub(crate) fn insert(&mut self, key: Key) -> Place {
        self.len += 1;
        self.bytes += key.size;
        let (at, rank) = (bin_of(key.size), key.rank());
        self.occupied[at / 64] |= 1 << (at % 64);
        let place = match self.bin_mut(at).and_then(|bin| bin.insert(rank)) {
            Some(place) => place,
            None => self.insert_further(at, rank),
        };
        Place {
            bin: at as u16,
            at: place,
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_further(&mut self, at: usize, rank: u128) -> u8 {
        if at >= self.bins.len() {
            self.bins.reserve_exact(at + 1 - self.bins.len());
            self.bins.resize_with(at + 1, || None);
        }
        self.bins[at].get_or_insert_default().insert_further(rank)
    }

    /// Takes out a key that is in the index, at a place. The block that has this place now, or else its own.
    #[inline(always)]
    pub(crate) fn remove(&mut self, key: Key, place: Place) -> u32 {
        self.len -= 1;
        self.bytes -= key.size;
        let at = usize::from(place.bin);
        // Where something is there is a bin.
        let Some(bin) = self.bin_mut(at) else {
            return key.block;
        };
        let moved = bin.remove(key.rank(), place.at);
        self.occupied[at / 64] &= !(u64::from(bin.is_empty()) << (at % 64));
        moved as u32
    }

    /// The block that a request for `size` bytes gets, which goes `low` or where it fits best.
    #[inline(always)]
    pub(crate) fn fit(&mut self, size: u64, low: bool) -> Found {
        match low {
            true => self.low_fit(size),
            false => self.best_fit(size),
        }
    }

    /// The same beside what is to be had elsewhere.
    #[inline(never)]
    pub(crate) fn better(&mut self, other: Found, size: u64, low: bool) -> Found {
        if low {
            let own = self.low_fit(size);
            return if own.low(size) < other.low(size) { own } else { other };
        }
        match other.key() {
            Some(key) if key.size == size => other,
            _ => Found(self.best_fit(size).0.min(other.0)),
        }
    }

    /// The smallest block of at least `size`, the lowest address among equals.
    #[inline(never)]
    fn best_fit(&mut self, size: u64) -> Found {
        let at = bin_of(size);
        // Needed about every other time, and then it is there.
        let next = self.next_bin(at + 1);
        let next = self.bin_mut(next).map_or(NONE, Bin::first);
        let own = self.bin(at).map_or(NONE, |bin| bin.first_from(least(size)));
        Found(own.min(next))
    }

    /// The block of exactly `size`, or else of a few that are little larger the one at the lowest address.
    #[inline(never)]
    fn low_fit(&mut self, size: u64) -> Found {
        let mut at = self.next_bin(bin_of(size));
        let mut lowest = self.bin(at).map_or(NONE, |bin| bin.first_from(least(size)));
        if !is_none(lowest) && Key::of(lowest).size == size {
            return Found(lowest);
        }
        // Those behind it in the same word.
        let mut bits = self.occupied[at / 64] & (u64::MAX - 1) << (at % 64);
        for _ in 1..LOW_BINS {
            if bits == 0 {
                if at / 64 == WORDS - 1 {
                    break;
                }
                at = self.next_bin((at / 64 + 1) * 64);
                bits = self.occupied[at / 64];
            }
            at = at / 64 * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let rank = self.bin_mut(at).map_or(NONE, Bin::first);
            lowest = choose(addr_of(rank) < addr_of(lowest), rank, lowest);
        }
        Found(lowest)
    }

    /// The first bin from `from` on that has something, or else one that there is not.
    #[inline(always)]
    fn next_bin(&self, from: usize) -> usize {
        let mut word = from / 64;
        let mut bits = self.occupied[word] & (u64::MAX << (from % 64));
        while bits == 0 && word < WORDS - 1 {
            word += 1;
            bits = self.occupied[word];
        }
        word * 64 + bits.trailing_zeros() as usize
    }

    /// The bins that have something, from `from` on.
    fn occupied_bins(&self, from: usize) -> impl Iterator<Item = &Bin> {
        let there = |at: usize| (at < BINS).then_some(at);
        std::iter::successors(there(self.next_bin(from)), move |at| there(self.next_bin(at + 1)))
            .filter_map(|at| self.bin(at))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all blocks together.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The size of the largest block (0: there is none) and the number of blocks. Looks at the last occupied bin only.
    pub(crate) fn largest_and_count(&self) -> (u64, u64) {
        let last = self.occupied[..BINS / 64].iter().rposition(|bits| *bits != 0);
        let last = last.and_then(|word| self.bin(word * 64 + self.occupied[word].ilog2() as usize));
        let largest = last.and_then(Bin::last).map_or(0, |rank| Key::of(rank).size);
        (largest, self.len as u64)
    }

    /// Does something with the largest blocks, bin by bin, until it was done with so many and so many bytes. In no order within a bin; of one that
    /// has very many with the largest first, and of these the ones at the highest addresses. Unless whole bins are wanted it ends within one, too:
    /// once so many of them were of use.
    pub(crate) fn each_of_largest(
        &self,
        (blocks, bytes): (usize, u64),
        whole_bins: bool,
        mut is_of_use: impl FnMut(Key) -> bool,
    ) {
        let [seen, useful] = [Cell::new((0, 0)), Cell::new((0, 0))];
        let lacks = |of: &Cell<(usize, u64)>| of.get().0 < blocks || of.get().1 < bytes;
        let add = |to: &Cell<(usize, u64)>, key: Key| to.set((to.get().0 + 1, to.get().1 + key.size));
        for (word, occupied) in self.occupied.iter().enumerate().rev() {
            let mut bits = *occupied;
            while bits != 0 && lacks(&seen) {
                let bit = 63 - bits.leading_zeros() as usize;
                bits &= !(1 << bit);
                if let Some(bin) = self.bin(word * 64 + bit) {
                    bin.each_of_largest(
                        || whole_bins || lacks(&useful),
                        |rank| {
                            let key = Key::of(rank);
                            add(&seen, key);
                            if is_of_use(key) {
                                add(&useful, key);
                            }
                        },
                    );
                }
            }
        }
    }

    /// Does something with every block of at least `size` bytes, in no order. Looks at bins of such blocks only.
    pub(crate) fn each_from(&self, size: u64, mut work: impl FnMut(Key)) {
        let least = least(size);
        for bin in self.occupied_bins(bin_of(size)) {
            bin.each(|rank| {
                if rank >= least {
                    work(Key::of(rank));
                }
            });
        }
    }

    /// Does something with every block, in no order.
    #[inline]
    pub(crate) fn each(&self, mut work: impl FnMut(Key)) {
        if self.is_empty() {
            return;
        }
        for (word, occupied) in self.occupied.iter().enumerate() {
            let mut bits = *occupied;
            while bits != 0 {
                if let Some(bin) = self.bin(word * 64 + bits.trailing_zeros() as usize) {
                    bin.each(|rank| work(Key::of(rank)));
                }
                bits &= bits - 1;
            }
        }
    }
}

#[cfg(test)]
#[path = "free_tests.rs"]
mod tests;
