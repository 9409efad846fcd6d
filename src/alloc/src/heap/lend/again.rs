//! Which sizes come again: of which a block is asked for after one was given back, before a request of another size needs to look at all
//! free memory. Only blocks of such sizes are worth lending to a lane.
//!
//! A small request needs to when nothing fits otherwise: small blocks are a small part of all memory, and a worse fit among them costs
//! little. A large one does whenever there is no block of exactly its size: what is set aside may be part of a better fit.

use crate::lane::{SORTS, list_of, sort_of, sorts_between};

/// Sizes told apart.
const SIZES: usize = 1024;
/// A stream that has no more than so many needs no table of them: there may be thousands of such.
const FEW: usize = 8;
/// How often a size came again, more often than not, when it is worth lending. Of large ones one has to be surer: what is set aside of
/// them comes back soon.
const WORTH: i8 = 2;
const WORTH_LARGE: i8 = 6;
/// How sure one can be of a size, and how sure of the contrary.
const SURE: i8 = 8;
const NEVER: i8 = -8;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    size: u64,
    /// Where the one was that was given back last, and the free block that it joined.
    addr: u64,
    block: u32,
    /// When that was.
    round: u32,
    /// How often it came again, more often than not.
    score: i8,
}

/// Which of a few is of a list. Most requests ask among many.
#[inline(never)]
fn among(few: &[Entry], list: usize) -> Option<usize> {
    few.iter().position(|entry| list_of(entry.size) == list)
}

/// The sizes of one stream, small or large ones.
#[derive(Debug, Default)]
pub(in crate::heap) struct Again {
    /// None while the few are enough.
    sizes: Vec<Entry>,
    /// Each in another list. None before the first block is given back: many streams only use what others allocate.
    few: Vec<Entry>,
    /// Requests that looked at all free memory.
    round: u32,
    /// The score from which on a size comes again; none where nothing is lent.
    worth: Option<i8>,
    /// The sorts of sizes of which a block was given back in this round.
    waits: [u64; SORTS],
}

impl Again {
    /// That of small sizes, and that of large ones.
    pub(in crate::heap) fn both() -> [Again; 2] {
        [WORTH, WORTH_LARGE].map(Again::new)
    }

    fn new(worth: i8) -> Again {
        Again {
            sizes: Vec::new(),
            few: Vec::new(),
            round: 1,
            worth: Some(worth),
            waits: [0; SORTS],
        }
    }

    #[inline(always)]
    fn entry(&mut self, size: u64) -> Option<&mut Entry> {
        let list = list_of(size);
        self.sizes.get_mut(list).or_else(|| {
            let at = among(&self.few, list)?;
            self.few.get_mut(at)
        })
    }

    /// Whether a block of this size is worth lending.
    #[inline(always)]
    pub(in crate::heap) fn comes(&self, size: u64) -> bool {
        let list = list_of(size);
        let few = || self.few.get(among(&self.few, list)?);
        let entry = self.sizes.get(list).or_else(few);
        entry.is_some_and(|entry| (entry.size == size) & self.worth.is_some_and(|worth| entry.score >= worth))
    }

    /// A block is asked for. If one was given back just before: where that was, and the free block that it joined.
    #[inline(always)]
    pub(in crate::heap) fn asked(&mut self, size: u64) -> Option<(u64, u32)> {
        let round = self.round;
        let entry = self.entry(size)?;
        let comes = (entry.size == size) & (entry.round == round);
        // Where sizes are different every time so is this: a branch where it is looked at, not here.
        entry.round *= u32::from(!comes);
        entry.score = (entry.score + i8::from(comes)).min(SURE);
        comes.then_some((entry.addr, entry.block))
    }

    /// A block was given back that is not lent, and is part of a free one now.
    #[inline(always)]
    pub(in crate::heap) fn given_back(&mut self, size: u64, addr: u64, block: u32) {
        let round = self.round;
        let Some(entry) = self.entry(size) else {
            return self.another_given_back(size, addr, block);
        };
        let same = entry.size == size;
        if !same & (entry.score > 0) {
            entry.score -= 1;
            return;
        }
        // Whether the one before was asked for in time: no branch, as above.
        let in_time = (entry.round == 0) | (entry.round == round);
        let score = (entry.score - i8::from(!in_time)).max(NEVER) * i8::from(same);
        *entry = Entry {
            size,
            addr,
            block,
            round,
            score,
        };
        let (word, bit) = sort_of(size);
        self.waits[word] |= bit;
    }

    /// Whether a block of a size in between was given back in this round.
    #[inline(always)]
    pub(in crate::heap) fn waits_between(&self, from: u64, to: u64) -> bool {
        sorts_between(from, to, |word| self.waits[word])
    }

    #[cold]
    #[inline(never)]
    fn another_given_back(&mut self, size: u64, addr: u64, block: u32) {
        if self.worth.is_none() {
            return;
        }
        if self.few.len() < FEW {
            self.few.push(Entry {
                size,
                ..Entry::default()
            });
        } else {
            self.sizes = vec![Entry::default(); SIZES];
            for entry in std::mem::take(&mut self.few) {
                self.sizes[list_of(entry.size)] = entry;
            }
        }
        self.given_back(size, addr, block);
    }

    /// A block that was lent came back without having been asked for.
    pub(in crate::heap) fn did_not_come(&mut self, size: u64) {
        if let Some(entry) = self.entry(size).filter(|entry| entry.size == size) {
            entry.score = (entry.score - 1).max(NEVER);
        }
    }

    #[cfg(test)]
    pub(in crate::heap) fn has_table(&self) -> bool {
        !self.sizes.is_empty() || !self.few.is_empty()
    }

    /// A request looks at all free memory.
    #[inline(always)]
    pub(in crate::heap) fn next_round(&mut self) {
        // 0 is no round.
        self.round = self.round.wrapping_add(1).max(1);
        self.waits = [0; SORTS];
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// A block is given back and asked for again, so often.
    fn come_again(again: &mut Again, size: u64, times: i8) {
        for _ in 0..times {
            again.given_back(size, 7, 1);
            assert_eq!(again.asked(size), Some((7, 1)));
        }
    }

    #[test]
    fn a_size_comes_again_once_it_was_asked_for_after_it_was_given_back_often_enough() {
        let mut again = Again::new(WORTH);
        again.given_back(512, 7, 1);
        assert_eq!((again.comes(512), again.asked(1024)), (false, None));
        assert_eq!(again.asked(512), Some((7, 1)));
        assert_eq!(again.asked(512), None, "one block serves one request");
        assert!(!again.comes(512));
        come_again(&mut again, 512, 1);
        assert!(again.comes(512));
        again.did_not_come(512);
        assert!(!again.comes(512));
    }

    #[test]
    fn sizes_between_two_are_those_given_back_since_all_memory_was_looked_at() {
        const MIB: u64 = 1 << 20;
        let mut again = Again::new(WORTH);
        again.given_back(40 * MIB, 7, 1);
        assert!(again.waits_between(2 * MIB, 64 * MIB) && again.waits_between(40 * MIB, 64 * MIB));
        assert!(!again.waits_between(2 * MIB, 30 * MIB) && !again.waits_between(64 * MIB, 1 << 40));
        again.next_round();
        assert!(!again.waits_between(2 * MIB, 64 * MIB));
    }

    #[test]
    fn what_was_given_back_before_all_memory_was_looked_at_does_not_count() {
        let mut again = Again::new(WORTH);
        come_again(&mut again, 512, WORTH);
        again.given_back(512, 7, 1);
        again.next_round();
        assert_eq!((again.asked(512), again.comes(512)), (None, true));
        again.given_back(512, 7, 1);
        assert!(!again.comes(512), "the one before was not asked for in time");
    }

    #[test]
    fn another_size_takes_a_place_only_when_nobody_is_sure_of_it() {
        let mut again = Again::new(WORTH);
        let other = (1..)
            .map(|n| 512 + n * 512)
            .find(|size| list_of(*size) == list_of(512))
            .unwrap_or(0);
        come_again(&mut again, 512, WORTH);
        for _ in 0..WORTH {
            again.given_back(other, 9, 2);
            assert!(again.entry(512).is_some_and(|entry| entry.size == 512));
        }
        again.given_back(other, 9, 2);
        assert_eq!(again.asked(other), Some((9, 2)));
        come_again(&mut again, other, WORTH);
        assert!(again.comes(other) && !again.comes(512));
    }

    proptest! {
        /// As long as there are few sizes they are kept elsewhere than many are: nobody notices.
        #[test]
        fn few_sizes_are_told_apart_as_many_are(
            sizes in prop::collection::vec(1u64..4000, 1..3 * FEW),
            ops in prop::collection::vec((any::<prop::sample::Index>(), 0..8), 1..300),
        ) {
            let mut again = Again::new(WORTH);
            let mut of_many = Again { sizes: vec![Entry::default(); SIZES], ..Again::new(WORTH) };
            for (at, (size, op)) in ops.into_iter().enumerate() {
                let size = size.get(&sizes) * 512;
                for again in [&mut again, &mut of_many] {
                    match op {
                        0..4 => again.given_back(size, at as u64, 7),
                        4 => again.did_not_come(size),
                        5 => again.next_round(),
                        _ => {}
                    }
                }
                prop_assert_eq!(again.asked(size), of_many.asked(size));
                prop_assert!(sizes.iter().all(|size| again.comes(size * 512) == of_many.comes(size * 512)));
            }
            let lists: HashSet<usize> = sizes.iter().map(|size| list_of(size * 512)).collect();
            prop_assert!(again.sizes.is_empty() || lists.len() > FEW);
        }
    }

    #[test]
    fn where_nothing_is_lent_no_size_comes() {
        let mut again = Again::default();
        again.given_back(512, 7, 1);
        again.next_round();
        assert_eq!((again.asked(512), again.comes(512)), (None, false));
    }
}
