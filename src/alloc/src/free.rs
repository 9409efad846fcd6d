//! Best fit: the free blocks of one stream and class, by size and then by address.
//!
//! Sizes fall into bins of 1/16 octave; a bitmap finds the next bin that has something. A bin keeps its smallest block
//! apart from the others, so that the usual bin (empty, or with one block) costs a compare and nothing else.

use std::collections::BTreeSet;

use crate::size::MIN_BLOCK;

/// Bins for sizes up to 2^48 bytes.
const BINS: usize = 40 * 16;
const WORDS: usize = BINS.div_ceil(64);

/// A free block: the order is best fit, then lowest address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) size: u64,
    pub(crate) addr: u64,
    pub(crate) block: u32,
}

/// The free blocks of an allocator, pending ones not among them. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeBlocks {
    /// All of them together.
    pub total: u64,
    /// The largest.
    pub largest: u64,
    /// How many there are.
    pub count: u64,
}

impl FreeBlocks {
    /// External fragmentation, from 0 to 1: 1 - largest / total. `None` when nothing is free.
    pub fn fragmentation(&self) -> Option<f64> {
        (self.total > 0).then(|| 1.0 - self.largest as f64 / self.total as f64)
    }
}

#[derive(Debug, Default)]
struct Bin {
    /// The smallest; always present when the bin is not empty.
    first: Option<Key>,
    rest: Rest,
}

/// Keys of a bin beside its smallest that are kept in a sorted list. Most bins never have more, and a list moves few bytes where a tree
/// takes and frees memory.
const FEW: usize = 32;

/// The other keys of a bin: the smallest ones last to first, then the larger ones.
#[derive(Debug, Default)]
struct Rest {
    few: Vec<Key>,
    many: BTreeSet<Key>,
}

impl Rest {
    fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    #[inline]
    fn insert(&mut self, key: Key) {
        if self.few.len() >= FEW {
            return self.insert_many(key);
        }
        let at = self.few.partition_point(|other| *other > key);
        self.few.insert(at, key);
    }

    #[cold]
    fn insert_many(&mut self, key: Key) {
        match self.few.first() {
            Some(largest) if key < *largest => {
                self.many.insert(*largest);
                self.few.remove(0);
                let at = self.few.partition_point(|other| *other > key);
                self.few.insert(at, key);
            }
            _ => {
                self.many.insert(key);
            }
        }
    }

    #[inline]
    fn remove(&mut self, key: Key) {
        let at = self.few.partition_point(|other| *other > key);
        if self.few.get(at) == Some(&key) {
            self.few.remove(at);
            self.refill();
        } else {
            self.many.remove(&key);
        }
    }

    #[inline]
    fn pop_first(&mut self) -> Option<Key> {
        let first = self.few.pop();
        self.refill();
        first
    }

    /// All of the list is smaller than all of the tree; so it may only be short if the tree is empty.
    #[inline]
    fn refill(&mut self) {
        if !self.many.is_empty() {
            self.refill_from_many();
        }
    }

    #[cold]
    fn refill_from_many(&mut self) {
        if self.few.len() < FEW
            && let Some(next) = self.many.pop_first()
        {
            self.few.insert(0, next);
        }
    }

    /// The smallest of at least `size`.
    #[inline]
    fn best_fit(&self, size: u64) -> Option<Key> {
        let at = self.few.partition_point(|key| key.size >= size);
        match at {
            0 => self.first_of_many(size),
            at => Some(self.few[at - 1]),
        }
    }

    fn first_of_many(&self, size: u64) -> Option<Key> {
        let from = Key {
            size,
            addr: 0,
            block: 0,
        };
        self.many.range(from..).next().copied()
    }

    fn last(&self) -> Option<&Key> {
        self.many.last().or_else(|| self.few.first())
    }

    fn iter(&self) -> impl Iterator<Item = &Key> {
        self.few.iter().rev().chain(&self.many)
    }
}

/// The free blocks of one stream and class.
#[derive(Debug)]
pub(crate) struct FreeIndex {
    len: usize,
    occupied: [u64; WORDS],
    bins: Box<[Bin]>,
}

#[inline]
fn bin_of(size: u64) -> usize {
    let units = size / MIN_BLOCK;
    if units < 16 {
        return units as usize;
    }
    let log = 63 - units.leading_zeros();
    (16 * (log - 3)) as usize + ((units >> (log - 4)) & 15) as usize
}

impl FreeIndex {
    pub(crate) fn new() -> FreeIndex {
        FreeIndex {
            len: 0,
            occupied: [0; WORDS],
            bins: std::iter::repeat_with(Bin::default).take(BINS).collect(),
        }
    }

    #[inline]
    pub(crate) fn insert(&mut self, key: Key) {
        self.len += 1;
        let at = bin_of(key.size);
        let bin = &mut self.bins[at];
        match bin.first {
            None => {
                bin.first = Some(key);
                self.occupied[at / 64] |= 1 << (at % 64);
            }
            Some(first) if key < first => {
                bin.first = Some(key);
                bin.rest.insert(first);
            }
            Some(_) => bin.rest.insert(key),
        }
    }

    /// Takes out a key that is in the index.
    #[inline]
    pub(crate) fn remove(&mut self, key: Key) {
        self.len -= 1;
        let at = bin_of(key.size);
        let bin = &mut self.bins[at];
        if bin.first != Some(key) {
            bin.rest.remove(key);
            return;
        }
        bin.first = bin.rest.pop_first();
        if bin.first.is_none() {
            self.occupied[at / 64] &= !(1 << (at % 64));
        }
    }

    /// The smallest block of at least `size`, the lowest address among equals.
    #[inline]
    pub(crate) fn best_fit(&self, size: u64) -> Option<Key> {
        let at = bin_of(size);
        let bin = &self.bins[at];
        if let Some(first) = bin.first {
            if first.size >= size {
                return Some(first);
            }
            if let Some(key) = bin.rest.best_fit(size) {
                return Some(key);
            }
        }
        self.next_bin(at + 1).and_then(|at| self.bins[at].first)
    }

    #[inline]
    fn next_bin(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.occupied.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.occupied.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The size of the largest block (0: there is none) and the number of blocks. Looks at the occupied bins only.
    pub(crate) fn largest_and_count(&self) -> (u64, u64) {
        let (mut largest, mut count) = (0, 0);
        let mut at = self.next_bin(0);
        while let Some(bin) = at {
            let Bin { first, rest } = &self.bins[bin];
            largest = rest.last().or(first.as_ref()).map_or(0, |key| key.size);
            count += u64::from(first.is_some()) + rest.len() as u64;
            at = self.next_bin(bin + 1);
        }
        (largest, count)
    }

    /// All blocks of at least `size`, smallest first.
    pub(crate) fn at_least(&self, size: u64) -> impl Iterator<Item = Key> {
        std::iter::successors(self.next_bin(bin_of(size)), |at| self.next_bin(at + 1))
            .map(|at| &self.bins[at])
            .flat_map(|bin| bin.first.into_iter().chain(bin.rest.iter().copied()))
            .filter(move |key| key.size >= size)
    }
}

#[cfg(test)]
#[path = "free_tests.rs"]
mod tests;
