//! Where a block lies in what the driver gave.

use gpumem_channel::{BlockState, SegmentKind};

use super::Heap;
use super::segment::{Chunk, Segment};
use super::stitch::cover::chunks_over;
use crate::raw::Base;
use crate::share::Of;

impl Heap {
    /// The plain segment of a block.
    pub(crate) fn base_of(&self, b: u32) -> Option<Base> {
        let segment = self.segments.get(self.blocks[b].segment);
        segment
            .filter(|segment| segment.kind == SegmentKind::Plain)
            .map(|segment| Base {
                addr: segment.addr,
                bytes: segment.size,
            })
    }

    /// What a held block at an address lies in, where it begins in that, and its bytes. `None`: it was given back meanwhile.
    pub(crate) fn share_of(&self, b: u32, addr: u64) -> Option<(u64, u64, Of)> {
        let bytes = self.size_of(b);
        let block = self.blocks.get(b)?;
        let at = self
            .views
            .stitched(block.stitched)
            .map_or(block.addr, |whole| whole.addr);
        if block.state != BlockState::Allocated || at != addr {
            return None;
        }
        if let Some(base) = self.base_of(b) {
            return Some((block.addr - base.addr, bytes, Of::Whole(base.addr)));
        }
        let (offset, chunks) = match self.views.stitched(block.stitched) {
            Some(_) => self.chunks_of_stitched(block.stitched),
            None => match self.segments.get(block.segment) {
                Some(segment) => chunks_under(segment, block.addr, bytes),
                None => (0, Vec::new()),
            },
        };
        Some((offset, bytes, Of::Chunks(chunks)))
    }

    fn chunks_of_stitched(&self, stitched: u32) -> (u64, Vec<Chunk>) {
        let whole = self.views.stitched(stitched);
        let view = whole.and_then(|whole| self.views.view(whole.view));
        let home = self.home.and_then(|home| self.segments.get(home));
        let (Some(whole), Some(view), Some(home)) = (whole, view, home) else {
            return (0, Vec::new());
        };
        let (mut at, end) = (view.range, whole.addr + whole.size);
        let (mut first, mut chunks) = (whole.addr, Vec::new());
        for (place, size) in &view.chunks {
            if at + size > whole.addr && at < end {
                first = first.min(at);
                chunks.extend(home.chunks.get(place));
            }
            at += size;
        }
        (whole.addr - first, chunks)
    }
}

/// The chunks that a range of a virtual segment lies in, and where it begins in the first.
fn chunks_under(segment: &Segment, addr: u64, bytes: u64) -> (u64, Vec<Chunk>) {
    let over: Vec<u64> = chunks_over(segment, addr, addr + bytes).map(|(at, _)| at).collect();
    let chunks = over.iter().filter_map(|at| segment.chunks.get(at)).copied();
    (addr - over.first().copied().unwrap_or(addr), chunks.collect())
}
