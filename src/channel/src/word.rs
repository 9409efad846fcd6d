//! Access to shared memory, which this crate does only in this way: aligned 64-bit words, relaxed loads and stores, and
//! two fences.
//!
//! The ordering code is generic over [`Word`], so that the code that runs on a mapping also runs under loom (every
//! legal ordering), on words that ignore stores after a while (a writer killed between two stores), and with a fence
//! left out (which must fail).

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::map::{self, Map};

/// A shared 64-bit word. Always accessed at this width: Rust's memory model does not define mixed widths on one
/// location.
pub trait Word {
    /// Relaxed load. The only load allowed on a read-only mapping.
    fn get(&self) -> u64;
    /// Relaxed store.
    fn put(&self, value: u64);
    /// Release fence: a reader that sees a store made after it, and then passes an acquire fence, sees all stores
    /// before it.
    fn release_fence();
    /// Acquire fence, the counterpart of [`Word::release_fence`].
    fn acquire_fence();
    /// Prefetches the word `words` further on, if there is one, for a store.
    fn prefetch(&self, words: usize) {
        let _ = words;
    }
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn get(&self) -> u64 {
        AtomicU64::load(self, Ordering::Relaxed)
    }
    #[inline(always)]
    fn put(&self, value: u64) {
        AtomicU64::store(self, value, Ordering::Relaxed);
    }
    #[inline(always)]
    fn release_fence() {
        fence(Ordering::Release);
    }
    #[inline(always)]
    fn acquire_fence() {
        fence(Ordering::Acquire);
    }
    #[inline(always)]
    fn prefetch(&self, words: usize) {
        map::prefetch(self, words);
    }
}

/// Shared words as a slice: a mapping, or plain memory in tests.
pub(crate) trait Words {
    /// The word type.
    type W: Word;
    /// Returns all words; `None` in a forked child, where nothing can be stored.
    fn here(&self) -> Option<&[Self::W]>;
    /// Returns all words; an empty slice in a forked child.
    #[inline(always)]
    fn words(&self) -> &[Self::W] {
        self.here().unwrap_or_default()
    }
}

impl Words for Map {
    type W = AtomicU64;
    #[inline(always)]
    fn here(&self) -> Option<&[AtomicU64]> {
        Map::here(self)
    }
}

impl<W: Word> Words for Vec<W> {
    type W = W;
    fn here(&self) -> Option<&[W]> {
        Some(self)
    }
}

/// Packs three bytes and a 32-bit number into a word.
#[inline(always)]
pub(crate) fn pack(a: u8, b: u8, c: u8, high: u32) -> u64 {
    u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16 | u64::from(high) << 32
}

/// Returns byte `n` of a word.
#[inline(always)]
pub(crate) fn byte(word: u64, n: u32) -> u8 {
    (word >> (8 * n)) as u8
}

/// Returns the upper 32 bits of a word.
#[inline(always)]
pub(crate) fn high(word: u64) -> u32 {
    (word >> 32) as u32
}
