//! Since when each granule of a virtual segment is free.
//!
//! A free block is as young as its youngest part. A stream goes on taking memory from a large one and giving it back there, so that while the
//! GPU is behind the whole would never be known to be done with, and other streams would have new memory taken for them time and again. So
//! what was given back in each granule is known apart: of a block that is young the old parts become nobody's.

use super::Heap;
use super::block::{Block, NIL};
use crate::size::Class;

/// By granule of a segment: no block there was given back later than when the heap's free counter was this.
#[derive(Debug, Default)]
pub(crate) struct Ages(Vec<u64>);

impl Ages {
    /// A segment has so many bytes. Of what there is no age of yet nothing was given back after `now`.
    fn reach(&mut self, bytes: u64, granule: u64, now: u64) {
        let granules = bytes.div_ceil(granule) as usize;
        if self.0.len() < granules {
            self.0.resize(granules, now);
        }
    }

    /// The bytes `from..end` of the segment come free that were given back at `freed_at`.
    fn note(&mut self, (from, end): (u64, u64), granule: u64, freed_at: u64) {
        let by = granule.trailing_zeros();
        let (first, behind) = ((from >> by) as usize, ((end - 1) >> by) as usize + 1);
        let Some(ages) = self.0.get_mut(first..behind) else {
            return;
        };
        for (at, age) in ages.iter_mut().enumerate() {
            let start = (first + at) as u64 * granule;
            let whole = from <= start && start + granule <= end;
            *age = if whole { freed_at } else { freed_at.max(*age) };
        }
    }

    /// The runs of whole granules in `from..end` in which nothing was given back after `safe`: where they begin and end.
    fn until(&self, safe: u64, (from, end): (u64, u64), granule: u64) -> impl Iterator<Item = (u64, u64)> {
        let by = granule.trailing_zeros();
        let first = from.div_ceil(granule);
        let ages = self.0.get(first as usize..(end >> by) as usize).unwrap_or_default();
        let mut behind = first;
        ages.chunk_by(move |a, b| (*a <= safe) == (*b <= safe))
            .filter_map(move |run| {
                let start = behind;
                behind += run.len() as u64;
                (run[0] <= safe).then_some((start * granule, behind * granule))
            })
    }
}

impl Block {
    /// Whether it is of a virtual segment: they have ages.
    #[inline(always)]
    fn has_ages(&self) -> bool {
        matches!(self.class, Class::Chunked | Class::Fine)
    }
}

impl Heap {
    /// A block is about to join its free neighbours. With one stream nobody would ask: what came free before there was a second one counts as
    /// young then.
    #[inline(always)]
    pub(super) fn note_age(&mut self, b: u32) {
        if self.streams.were_several() && self.blocks[b].has_ages() {
            self.note_age_of(b);
        }
    }

    #[inline(never)]
    fn note_age_of(&mut self, b: u32) {
        let (granule, frees) = (self.sizes.granularity, self.frees);
        let block = &self.blocks[b];
        if let Some(segment) = self.segments.get_mut(block.segment) {
            let from = block.addr - segment.addr;
            segment.ages.reach(segment.size, granule, frees);
            segment.ages.note((from, from + block.size), granule, block.freed_at);
        }
    }

    /// Cuts what a stream does not use any more out of its younger free blocks: parts in which nothing was given back after `safe`, and are no
    /// younger then. All pieces of such a block are added to `done` by segment, still the stream's. The channel is to be told of them once
    /// the old ones are not: two of one stream side by side are one.
    pub(super) fn cut_out_old(&mut self, stream: u16, safe: u64, done: &mut Vec<(u32, u32)>) {
        if !self.streams.were_several() {
            return;
        }
        let mut young = Vec::new();
        for class in [Class::Chunked, Class::Fine] {
            let index = &self.streams.line(stream).free[class as usize];
            index.each_from(self.sizes.granularity, |key| {
                if self.blocks[key.block].freed_at > safe {
                    young.push(key.block);
                }
            });
        }
        for b in young {
            self.cut_old_parts(b, safe, done);
        }
    }

    /// Where parts of a free block begin and end in which nothing was given back after `safe`.
    pub(super) fn old_parts(&self, b: u32, safe: u64) -> Vec<(u64, u64)> {
        let block = &self.blocks[b];
        let Some(segment) = self.segments.get(block.segment).filter(|_| block.has_ages()) else {
            return Vec::new();
        };
        let from = block.addr - segment.addr;
        let within = (from, from + block.size);
        let parts = segment.ages.until(safe, within, self.sizes.granularity);
        parts
            .map(|(from, end)| (segment.addr + from, segment.addr + end))
            .collect()
    }

    /// The same of one block.
    fn cut_old_parts(&mut self, b: u32, safe: u64, done: &mut Vec<(u32, u32)>) {
        let slot = self.blocks[b].segment;
        let parts = self.old_parts(b, safe);
        if parts.is_empty() {
            return;
        }
        self.unshelve(b);
        let mut pieces = vec![b];
        for (addr, end) in parts {
            let old = self.cut_last(&mut pieces, addr);
            self.cut_last(&mut pieces, end);
            self.blocks[old].freed_at = safe;
        }
        for b in pieces {
            self.shelve(b);
            done.push((slot, b));
        }
    }

    /// Cuts the last piece there, if it goes on on both sides. The one behind.
    fn cut_last(&mut self, pieces: &mut Vec<u32>, addr: u64) -> u32 {
        let last = pieces.last().copied().unwrap_or(NIL);
        let block = &self.blocks[last];
        let before = addr - block.addr;
        if before == 0 || before == block.size {
            return last;
        }
        let rest = self.cut(last, before);
        pieces.push(rest);
        rest
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const GRANULE: u64 = 4;
    const END: u64 = 40;

    #[test]
    fn granules_are_as_young_as_what_came_free_in_them_last() {
        let mut ages = Ages::default();
        ages.reach(20, GRANULE, 9);
        ages.note((0, 12), GRANULE, 5);
        ages.note((2, 5), GRANULE, 7);
        ages.note((16, 20), GRANULE, 3);
        let until = |safe| ages.until(safe, (0, 20), GRANULE).collect::<Vec<_>>();
        assert_eq!(until(4), [(16, 20)]);
        assert_eq!(until(5), [(8, 12), (16, 20)]);
        assert_eq!(until(7), [(0, 12), (16, 20)]);
        assert_eq!(until(9), [(0, 20)], "of what lies between nothing was told");
        assert_eq!(ages.until(9, (1, 11), GRANULE).collect::<Vec<_>>(), [(4, 8)]);
        assert_eq!(ages.until(9, (8, 100), GRANULE).count(), 0, "nor of what lies behind");
    }

    proptest! {
        /// What is old is old to the byte, and of what came free granule by granule all that is old is found.
        #[test]
        fn what_is_told_to_be_old_is(
            frees in prop::collection::vec((0..END, 1..END, 0u64..40, any::<bool>()), 1..40),
            safe in 0u64..40,
        ) {
            let mut ages = Ages::default();
            ages.reach(END, GRANULE, 0);
            let mut bytes = [0; END as usize];
            let mut only_whole = true;
            for (from, size, freed_at, whole) in frees {
                let end = (from + size).min(END);
                let (from, end) = match whole {
                    true => (from / GRANULE * GRANULE, end.next_multiple_of(GRANULE)),
                    false => (from, end),
                };
                only_whole &= from.is_multiple_of(GRANULE) && end.is_multiple_of(GRANULE);
                ages.note((from, end), GRANULE, freed_at);
                bytes[from as usize..end as usize].fill(freed_at);
            }
            let mut told = [false; END as usize];
            for (from, end) in ages.until(safe, (0, END), GRANULE) {
                told[from as usize..end as usize].fill(true);
            }
            for (at, freed_at) in bytes.into_iter().enumerate() {
                prop_assert!(!told[at] || freed_at <= safe, "byte {at}");
                prop_assert!(!only_whole || told[at] == (freed_at <= safe), "byte {at}");
            }
        }
    }
}
