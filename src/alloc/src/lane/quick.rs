//! Free blocks set aside whole, by exact size: neither the heap's index nor a neighbour has to be looked at. What is in a list is a
//! number; the links are kept with what is numbered.

use super::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::size::{SMALL_MAX, class_size};

/// Sizes told apart.
const LISTS: usize = 1024;
/// The size of a list that is no size's: no block's, and that of no request, not even of one for no bytes.
const NO_SIZE: u64 = 1;
/// The end of a list.
pub(super) const END: u32 = u32::MAX;

/// One of them, in one line of the cache.
#[derive(Debug)]
struct List {
    size: AtomicU64,
    first: AtomicU32,
}

/// Lists by size: the size, and the block of it that was set aside last. They change under their lane's lock only; without it a look
/// tells whether that is worth taking.
#[derive(Debug)]
pub(super) struct Lists {
    lists: [List; LISTS],
    /// Blocks in all of them.
    count: AtomicU32,
    /// The sorts of their sizes, and perhaps of some that were taken.
    sorts: [AtomicU64; SORTS],
    /// Whether a request gets a block of its size class rather than of its size. Changes under the heap's lock.
    by_class: AtomicBool,
}

impl Lists {
    pub(super) const fn new() -> Lists {
        Lists {
            lists: [const {
                List {
                    size: AtomicU64::new(NO_SIZE),
                    first: AtomicU32::new(END),
                }
            }; LISTS],
            count: AtomicU32::new(0),
            sorts: [const { AtomicU64::new(0) }; SORTS],
            by_class: AtomicBool::new(false),
        }
    }

    #[inline(always)]
    fn size(&self, list: usize) -> u64 {
        self.lists[list].size.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn get(&self, list: usize) -> u32 {
        self.lists[list].first.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set(&self, list: usize, first: u32) {
        self.lists[list].first.store(first, Ordering::Relaxed);
    }

    /// The block of a size that was set aside last. Without the lane's lock: one that was, a moment ago.
    #[inline(always)]
    pub(super) fn first(&self, size: u64) -> Option<u32> {
        let list = list_of(size);
        let first = self.get(list);
        (first != END && self.size(list) == size).then_some(first)
    }

    /// Takes the [`first`](Lists::first) of a size, which is linked to `link`.
    #[inline(always)]
    pub(super) fn take(&self, size: u64, link: u32) {
        self.set(list_of(size), link);
        self.counted(u32::MAX);
    }

    /// Whether there is nothing. Without the lane's lock: a moment ago.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    #[inline(always)]
    fn counted(&self, more: u32) {
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count.wrapping_add(more), Ordering::Relaxed);
    }

    /// Whether there may be a block of a size in between, by the sorts of sizes.
    #[inline(always)]
    pub(super) fn may_have_between(&self, from: u64, to: u64) -> bool {
        sorts_between(from, to, |word| self.sorts[word].load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn add_sort(&self, size: u64) {
        let (word, bit) = sort_of(size);
        let sorts = &self.sorts[word];
        sorts.store(sorts.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
    }

    fn clear_sorts(&self) {
        self.sorts.iter().for_each(|sorts| sorts.store(0, Ordering::Relaxed));
    }

    /// Whether a block of this size may be set aside: its list is not taken by another size.
    #[inline(always)]
    pub(super) fn takes(&self, size: u64) -> bool {
        let list = list_of(size);
        self.size(list) == size || self.get(list) == END && self.block_size(size) == size
    }

    /// The size of the blocks that requests of a size get.
    #[inline(always)]
    pub(super) fn block_size(&self, size: u64) -> u64 {
        if self.by_class.load(Ordering::Relaxed) {
            class_size(size)
        } else {
            size
        }
    }

    /// Requests get blocks of their size class from now on, or of just their size again. What is set aside is nobody's until it is
    /// [taken](Noted::take_any).
    pub(super) fn set_by_class(&self, by_class: bool) {
        self.by_class.store(by_class, Ordering::Relaxed);
        // What had a list of its own may have none any more.
        self.lists
            .iter()
            .for_each(|list| list.size.store(NO_SIZE, Ordering::Relaxed));
    }

    pub(super) fn clear(&self) {
        self.lists
            .iter()
            .for_each(|list| list.first.store(END, Ordering::Relaxed));
        self.count.store(0, Ordering::Relaxed);
        self.clear_sorts();
        self.set_by_class(false);
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// All of one size.
    #[cfg(test)]
    pub(super) fn of_size(&self, size: u64, link: impl Fn(u32) -> u32) -> Vec<u32> {
        std::iter::successors(self.first(size), |at| Some(link(*at)).filter(|next| *next != END)).collect()
    }
}

/// Words of the sorts of sizes: eight to each power of two, from 1 MiB on.
pub(crate) const SORTS: usize = 4;

/// The sort of a size: a word, and a bit of it. All small ones are of that of the smallest large ones.
#[inline(always)]
pub(crate) fn sort_of(size: u64) -> (usize, u64) {
    let sort = number_of_sort(size);
    (sort / 64, 1 << (sort % 64))
}

#[inline(always)]
pub(super) fn number_of_sort(size: u64) -> usize {
    // A float is a power and what comes behind its first bit: no size is too large for that to be exact.
    let sort = |size: u64| ((size as i64 as f64).to_bits() >> (f64::MANTISSA_DIGITS - 1 - 3)) as usize;
    sort(size).saturating_sub(sort(SMALL_MAX)).min(64 * SORTS - 1)
}

/// Whether a size between two, or of the sort of one of them, is among some, by their words.
#[inline(always)]
pub(crate) fn sorts_between(from: u64, to: u64, words: impl Fn(usize) -> u64) -> bool {
    let (first, end) = (number_of_sort(from), number_of_sort(to) + 1);
    let mut at = first;
    while at < end {
        let (word, bit) = (at / 64, at % 64);
        let bits = (end - at).min(64 - bit);
        if words(word) >> bit & (u64::MAX >> (64 - bits)) != 0 {
            return true;
        }
        at += bits;
    }
    false
}

/// Which lists are not empty, and some that are.
#[derive(Debug, Default)]
pub(super) struct Noted {
    lists: Vec<u16>,
    among: [u64; LISTS / 64],
}

/// The list of a size, which another size may have taken.
#[inline(always)]
pub(crate) fn list_of(size: u64) -> usize {
    // Sizes are multiples of 512, and often of much more.
    ((size >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize
}

impl Noted {
    /// Sets a block aside where that is [allowed](Lists::takes). What it is to be linked to.
    #[inline(always)]
    pub(super) fn put(&mut self, lists: &Lists, size: u64, at: u32) -> u32 {
        let list = list_of(size);
        let link = lists.get(list);
        lists.set(list, at);
        lists.counted(1);
        if size > SMALL_MAX {
            lists.add_sort(size);
        }
        if lists.size(list) != size {
            lists.lists[list].size.store(size, Ordering::Relaxed);
        }
        let (word, bit) = (&mut self.among[list / 64], 1 << (list % 64));
        if *word & bit == 0 {
            *word |= bit;
            self.lists.push(list as u16);
        }
        link
    }

    /// Takes any block that is set aside.
    pub(super) fn take_any(&mut self, lists: &Lists, link: impl Fn(u32) -> u32) -> Option<u32> {
        while let Some(list) = self.lists.last().copied().map(usize::from) {
            let first = lists.get(list);
            if first != END {
                lists.set(list, link(first));
                lists.counted(u32::MAX);
                return Some(first);
            }
            self.among[list / 64] &= !(1 << (list % 64));
            self.lists.pop();
        }
        lists.clear_sorts();
        None
    }

    /// Notes the sorts of the sizes that are there, and no others. Whether there still may be a block of a size in between.
    pub(super) fn look_between(&self, lists: &Lists, from: u64, to: u64) -> bool {
        lists.clear_sorts();
        for list in self.lists.iter().copied().map(usize::from) {
            if lists.get(list) != END {
                lists.add_sort(lists.size(list));
            }
        }
        lists.may_have_between(from, to)
    }
}
