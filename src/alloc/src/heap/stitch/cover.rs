//! Which block of the home segment an address lies in.

use crate::heap::Heap;
use crate::heap::block::NIL;
use crate::heap::segment::{Chunk, Segment};

impl Heap {
    /// The block of the home segment that an address lies in.
    pub(in crate::heap) fn block_at(&self, addr: u64) -> Option<u32> {
        let segment = self.segments.get(self.home?)?;
        let granule = self.sizes.granule(addr.checked_sub(segment.addr)?);
        let known = segment.cover.get(..=granule.min(segment.cover.len().checked_sub(1)?))?;
        let (there, before) = known.split_last()?;
        // The first block of the same granule may begin behind the address.
        let mut b = match *there {
            b if b != NIL && self.blocks[b].addr <= addr => b,
            _ => last_known(before)?,
        };
        while b != NIL {
            let block = &self.blocks[b];
            if addr < block.addr + block.size {
                return Some(b);
            }
            b = block.next;
        }
        None
    }

    /// Notes where a block begins, if that is in the home segment.
    #[inline]
    pub(in crate::heap) fn cover(&mut self, b: u32, addr: u64, segment: u32) {
        if self.home != Some(segment) {
            return;
        }
        if let Some(segment) = self.segments.get_mut(segment) {
            let granule = self.sizes.granule(addr - segment.addr);
            match segment.cover.get_mut(granule) {
                Some(known) if self.blocks.get(*known).is_some_and(|known| known.addr <= addr) => {}
                Some(known) => *known = b,
                None => cover_further(segment, granule, b),
            }
        }
    }

    /// A block that begins there is about to go; `next` is the one behind it.
    #[inline]
    pub(in crate::heap) fn uncover(&mut self, b: u32, addr: u64, segment: u32, next: u32) {
        if self.home != Some(segment) {
            return;
        }
        if let Some(segment) = self.segments.get_mut(segment) {
            let granule = |addr: u64| self.sizes.granule(addr - segment.addr);
            let at = granule(addr);
            if segment.cover.get(at) == Some(&b) {
                let same = next != NIL && granule(self.blocks[next].addr) == at;
                segment.cover[at] = if same { next } else { NIL };
            }
        }
    }
}

impl Heap {
    /// Notes where chunks begin and end that come to the home segment.
    pub(in crate::heap) fn note_borders(&mut self, slot: u32, chunks: &[(u64, Chunk)]) {
        if self.home != Some(slot) {
            return;
        }
        let Some(segment) = self.segments.get_mut(slot) else {
            return;
        };
        for (addr, chunk) in chunks {
            for border in [*addr, addr + chunk.size] {
                let at = self.sizes.granule(border - segment.addr);
                if segment.borders.len() <= at / 64 {
                    segment.borders.resize(at / 64 + 1, 0);
                }
                segment.borders[at / 64] |= 1 << (at % 64);
            }
        }
    }

    /// Chunks side by side go. Where the first begins and the last ends others may.
    pub(in crate::heap) fn forget_borders(&mut self, slot: u32, run: &[(u64, Chunk)]) {
        let Some(segment) = self.segments.get_mut(slot) else {
            return;
        };
        for (addr, _) in run.iter().skip(1) {
            let at = self.sizes.granule(addr - segment.addr);
            if let Some(bits) = segment.borders.get_mut(at / 64) {
                *bits &= !(1 << (at % 64));
            }
        }
    }
}

impl Segment {
    /// Whether a chunk may begin or end where one of these granules begins. Most free blocks of a large program reach no such place, and to look
    /// for the chunk that they lie in takes much longer.
    pub(in crate::heap) fn may_have_border(&self, from: usize, to: usize) -> bool {
        let bits = |at: usize| u128::from(self.borders.get(at).copied().unwrap_or(0));
        let bits = bits(from / 64) | bits(from / 64 + 1) << 64;
        to - from >= 64 || bits >> (from % 64) & ((1 << (to - from + 1)) - 1) != 0
    }
}

/// The segment has grown to that granule, which begins with that block.
#[cold]
#[inline(never)]
fn cover_further(segment: &mut Segment, granule: usize, b: u32) {
    segment.cover.resize(granule, NIL);
    segment.cover.push(b);
}

/// The last of these that is known. Many are not where a block is large.
fn last_known(known: &[u32]) -> Option<u32> {
    let (rest, groups) = known.as_rchunks::<8>();
    let group = groups.iter().rev().find(|group| **group != [NIL; 8]);
    let group = group.map_or(rest, |group| group.as_slice());
    group.iter().rev().find(|b| **b != NIL).copied()
}

/// The chunks of a segment that a range overlaps: where they begin, and their sizes.
pub(in crate::heap) fn chunks_over(segment: &Segment, addr: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let first = segment.chunks.range(..=addr).next_back().map_or(addr, |(at, _)| *at);
    segment.chunks.range(first..end).map(|(at, chunk)| (*at, chunk.size))
}

/// The same from the last one on: with one look for where they are.
pub(in crate::heap) fn chunks_back_over(segment: &Segment, addr: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut before = segment.chunks.range(..end).rev();
    let mut more = true;
    std::iter::from_fn(move || {
        let (at, chunk) = more.then(|| before.next()).flatten()?;
        more = *at > addr;
        Some((*at, chunk.size))
    })
}
