//! Free blocks set aside whole, by exact size: neither the heap's index nor a neighbour has to be looked at. What is in a list is a
//! number; the links are kept with what is numbered.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Sizes told apart.
const LISTS: usize = 256;
/// The end of a list.
const END: u32 = u32::MAX;

/// Lists by size: the size, and the block of it that was set aside last. They change under their lane's lock only; without it a look
/// tells whether that is worth taking.
#[derive(Debug)]
pub(super) struct Lists {
    sizes: [AtomicU64; LISTS],
    firsts: [AtomicU32; LISTS],
    /// Blocks in all of them.
    count: AtomicU32,
}

impl Lists {
    pub(super) fn new() -> Lists {
        Lists {
            sizes: std::array::from_fn(|_| AtomicU64::new(0)),
            firsts: std::array::from_fn(|_| AtomicU32::new(END)),
            count: AtomicU32::new(0),
        }
    }

    #[inline(always)]
    fn size(&self, list: usize) -> u64 {
        self.sizes[list].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn get(&self, list: usize) -> u32 {
        self.firsts[list].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set(&self, list: usize, first: u32) {
        self.firsts[list].store(first, Ordering::Relaxed);
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

    /// Whether a block of this size may be set aside: its list is not taken by another size.
    #[inline(always)]
    pub(super) fn takes(&self, size: u64) -> bool {
        let list = list_of(size);
        self.size(list) == size || self.get(list) == END
    }

    pub(super) fn clear(&self) {
        self.firsts.iter().for_each(|first| first.store(END, Ordering::Relaxed));
        self.count.store(0, Ordering::Relaxed);
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

/// Which lists are not empty, and some that are.
#[derive(Debug, Default)]
pub(super) struct Noted {
    lists: Vec<u8>,
    among: [u64; LISTS / 64],
}

/// The list of a size, which another size may have taken.
#[inline(always)]
pub(crate) fn list_of(size: u64) -> usize {
    // Sizes are multiples of 512, and often of much more.
    ((size >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

impl Noted {
    /// Sets a block aside where that is [allowed](Lists::takes). What it is to be linked to.
    #[inline(always)]
    pub(super) fn put(&mut self, lists: &Lists, size: u64, at: u32) -> u32 {
        let list = list_of(size);
        let link = lists.get(list);
        lists.set(list, at);
        lists.counted(1);
        lists.sizes[list].store(size, Ordering::Relaxed);
        let (word, bit) = (&mut self.among[list / 64], 1 << (list % 64));
        if *word & bit == 0 {
            *word |= bit;
            self.lists.push(list as u8);
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
        None
    }
}
