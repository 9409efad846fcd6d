//! A set of the pages of one block.

use std::ops::Range;

use super::PAGES;

/// A set of the pages of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mask([u64; PAGES / 64]);

impl Mask {
    pub(super) fn all() -> Mask {
        Mask([u64::MAX; PAGES / 64])
    }

    pub(super) fn one(page: usize) -> Mask {
        Mask::range(page..page + 1)
    }

    pub(super) fn range(pages: Range<usize>) -> Mask {
        let mut mask = Mask::default();
        for page in pages {
            mask.set(page);
        }
        mask
    }

    pub(super) fn set(&mut self, page: usize) {
        self.0[page / 64] |= 1 << (page % 64);
    }

    pub(super) fn has(&self, page: usize) -> bool {
        self.0[page / 64] >> (page % 64) & 1 == 1
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Mask::default()
    }

    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn with(self, other: Mask, join: impl Fn(u64, u64) -> u64) -> Mask {
        Mask(std::array::from_fn(|i| join(self.0[i], other.0[i])))
    }

    pub(super) fn and(self, other: Mask) -> Mask {
        self.with(other, |a, b| a & b)
    }

    pub(super) fn or(self, other: Mask) -> Mask {
        self.with(other, |a, b| a | b)
    }

    pub(super) fn without(self, other: Mask) -> Mask {
        self.with(other, |a, b| a & !b)
    }

    pub(super) fn pages(self) -> impl Iterator<Item = usize> {
        (0..PAGES).filter(move |page| self.has(*page))
    }

    /// Returns the pages as bits, lowest first.
    pub(super) fn words(self) -> [u64; PAGES / 64] {
        self.0
    }

    /// Returns the parts of 16 pages that have any page of the set, as bits, lowest first.
    pub(super) fn parts(self) -> u32 {
        self.pages().fold(0, |parts, page| parts | 1 << (page / 16))
    }

    /// Returns the number of contiguous runs. Each is one copy.
    pub(super) fn runs(&self) -> u64 {
        let begins = |page: &usize| *page == 0 || !self.has(*page - 1);
        self.pages().filter(begins).count() as u64
    }
}
