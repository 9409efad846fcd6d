//! Which block of the home segment an address lies in.

use super::Heap;
use super::block::NIL;
use super::segment::Segment;

impl Heap {
    /// The block of the home segment that an address lies in.
    pub(super) fn block_at(&self, addr: u64) -> Option<u32> {
        let segment = self.segments.get(self.home?)?;
        let granule = self.sizes.granule(addr.checked_sub(segment.addr)?);
        let known = segment.cover.get(..=granule.min(segment.cover.len().checked_sub(1)?))?;
        let before = |b: &&u32| **b != NIL && self.blocks[**b].addr <= addr;
        let mut b = *known.iter().rev().find(before)?;
        while b != NIL {
            let block = &self.blocks[b];
            if addr < block.addr + block.size {
                return Some(b);
            }
            b = block.next;
        }
        None
    }

    /// Notes where a block of the home segment begins.
    #[inline]
    pub(super) fn cover(&mut self, b: u32) {
        let block = &self.blocks[b];
        if self.home != Some(block.segment) {
            return;
        }
        let addr = block.addr;
        if let Some(segment) = self.segments.get_mut(block.segment) {
            let granule = self.sizes.granule(addr - segment.addr);
            match segment.cover.get_mut(granule) {
                Some(known) if self.blocks.get(*known).is_some_and(|known| known.addr <= addr) => {}
                Some(known) => *known = b,
                None => cover_further(segment, granule, b),
            }
        }
    }

    /// A block of the home segment is about to go; `next` is the one behind it.
    #[inline]
    pub(super) fn uncover(&mut self, b: u32, next: u32) {
        let block = &self.blocks[b];
        if self.home != Some(block.segment) {
            return;
        }
        let addr = block.addr;
        if let Some(segment) = self.segments.get_mut(block.segment) {
            let granule = |addr: u64| self.sizes.granule(addr - segment.addr);
            let at = granule(addr);
            if segment.cover.get(at) == Some(&b) {
                let same = next != NIL && granule(self.blocks[next].addr) == at;
                segment.cover[at] = if same { next } else { NIL };
            }
        }
    }
}

/// The segment has grown to that granule, which begins with that block.
#[cold]
#[inline(never)]
fn cover_further(segment: &mut Segment, granule: usize, b: u32) {
    segment.cover.resize(granule, NIL);
    segment.cover.push(b);
}

/// The chunks of a segment that a range overlaps: where they begin, and their sizes.
pub(super) fn chunks_over(segment: &Segment, addr: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let first = segment.chunks.range(..=addr).next_back().map_or(addr, |(at, _)| *at);
    segment.chunks.range(first..end).map(|(at, chunk)| (*at, chunk.size))
}
