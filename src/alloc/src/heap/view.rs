//! Views: address ranges at which chunks are mapped a second time, in another order, so that free pieces that lie apart at home are
//! side by side there.
//!
//! Physical memory has one home each, in the one virtual segment for large requests; what is free and what is held is said there. A
//! stitched block is held as several pieces at home and used at its address in a view. When it is freed its pieces are free like
//! any others, and the view stays mapped: any later request that finds enough free memory side by side in one of the views has it
//! without a driver call. So a program that goes on doing the like maps less and less.

use std::collections::HashSet;

use super::Heap;
use super::block::NIL;
use super::segment::Segment;
use crate::error::DeviceError;

/// Mappings of views that are kept for later; few in tests, so that views go there, too. Beyond that the ones not used for longest go: address space is plenty, but a driver was
/// seen to refuse more than half a million mappings, and a request that fits nowhere looks at all of them.
const MAX_MAPPINGS: usize = if cfg!(test) { 24 } else { 16_384 };

/// Runs of free memory that a request chooses the smallest from.
const ENOUGH: usize = 8;

/// Chunks mapped side by side.
#[derive(Debug)]
pub(super) struct View {
    /// The address range.
    range: u64,
    bytes: u64,
    /// Where its chunks are at home, and their sizes.
    chunks: Vec<(u64, u64)>,
    /// Stitched blocks in it.
    users: u32,
    /// The streams that blocks in it were freed on, with the heap's free counter when each did so last: their queued work may use the
    /// addresses yet.
    freed: Vec<(u16, u64)>,
}

/// A part of the home segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) addr: u64,
    pub(super) size: u64,
}

/// A block that is used in a view.
#[derive(Debug)]
pub(super) struct Stitched {
    pub(super) view: u32,
    pub(super) addr: u64,
    pub(super) size: u64,
    /// The blocks of its pieces at home.
    pub(super) parts: Vec<u32>,
}

/// What is left of a view when the driver fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stale {
    /// The reserved range and its bytes.
    pub(super) range: u64,
    pub(super) bytes: u64,
    /// Bytes from its beginning that are mapped.
    pub(super) mapped: u64,
}

/// Free bytes at the beginning and at the end of a chunk; both are all of it if it is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    first: u64,
    last: u64,
}

/// Enough free memory side by side in a view.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    view: u32,
    /// From the beginning of the view's range.
    offset: u64,
    bytes: u64,
}

/// All views of a heap, and the blocks in them.
#[derive(Debug, Default)]
pub(super) struct Views {
    slots: Vec<Option<View>>,
    stitched: Vec<Option<Stitched>>,
    mappings: usize,
    /// Ranges that could not be unmapped or given back: tried again at every release.
    stale: Vec<Stale>,
    /// For each granule of the home segment that a chunk begins at what of the chunk is free; all zero between searches.
    free: Vec<Ends>,
}

/// Puts something into the first vacant slot.
fn put<T>(slots: &mut Vec<Option<T>>, value: T) -> u32 {
    let at = slots.iter().position(Option::is_none).unwrap_or(slots.len());
    if at == slots.len() {
        slots.push(None);
    }
    slots[at] = Some(value);
    at as u32
}

impl Views {
    /// The stitched block of that number.
    #[inline]
    pub(super) fn stitched(&self, at: u32) -> Option<&Stitched> {
        self.stitched.get(at as usize).and_then(Option::as_ref)
    }

    fn view_mut(&mut self, view: u32) -> Option<&mut View> {
        self.slots.get_mut(view as usize).and_then(Option::as_mut)
    }

    /// Adds a view of chunks, given by where they are at home and by their sizes.
    pub(super) fn insert(&mut self, range: u64, chunks: Vec<(u64, u64)>) -> u32 {
        self.mappings += chunks.len();
        let view = View {
            range,
            bytes: chunks.iter().map(|(_, size)| size).sum(),
            chunks,
            users: 0,
            freed: Vec::new(),
        };
        put(&mut self.slots, view)
    }

    /// A block of `size` bytes from an offset of a view on.
    pub(super) fn add_block(&mut self, view: u32, offset: u64, size: u64) -> u32 {
        let range = self.view_mut(view).map_or(0, |view| {
            view.users += 1;
            view.range
        });
        let block = Stitched {
            view,
            addr: range + offset,
            size,
            parts: Vec::new(),
        };
        put(&mut self.stitched, block)
    }

    pub(super) fn set_parts(&mut self, at: u32, parts: Vec<u32>) {
        if let Some(Some(block)) = self.stitched.get_mut(at as usize) {
            block.parts = parts;
        }
    }

    /// The program gave the block back: work queued on its stream until now may use the view.
    pub(super) fn freed(&mut self, at: u32, frees: u64, stream: u16) {
        let view = self.stitched(at).map_or(NIL, |block| block.view);
        if let Some(view) = self.view_mut(view) {
            view.note_free(frees, stream);
        }
    }

    /// Forgets a block; its view stays.
    pub(super) fn remove_block(&mut self, at: u32) -> Option<Stitched> {
        let gone = self.stitched.get_mut(at as usize)?.take()?;
        if let Some(view) = self.view_mut(gone.view) {
            view.users -= 1;
        }
        Some(gone)
    }

    fn remove(&mut self, view: u32) -> Option<View> {
        let gone = self.slots.get_mut(view as usize)?.take()?;
        self.mappings -= gone.chunks.len();
        Some(gone)
    }

    /// Those that no block is in.
    fn idle(&self) -> impl Iterator<Item = (u32, &View)> {
        self.iter().filter(|(_, view)| view.users == 0)
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &View)> {
        let all = self.slots.iter().enumerate();
        all.filter_map(|(i, view)| view.as_ref().map(|view| (i as u32, view)))
    }

    /// Where the chunks are at home that any view maps.
    pub(super) fn mapped(&self) -> HashSet<u64> {
        let chunks = self.iter().flat_map(|(_, view)| &view.chunks);
        chunks.map(|(addr, _)| *addr).collect()
    }

    /// The pieces at home of a part of a view.
    pub(super) fn pieces(&self, view: u32, offset: u64, size: u64) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let Some(Some(view)) = self.slots.get(view as usize) else {
            return pieces;
        };
        let (mut at, end) = (0, offset + size);
        for (home, bytes) in &view.chunks {
            let (from, to) = (offset.max(at), end.min(at + bytes));
            if from < to {
                let addr = home + (from - at);
                match pieces.last_mut().filter(|last| last.addr + last.size == addr) {
                    Some(last) => last.size += to - from,
                    None => pieces.push(Piece { addr, size: to - from }),
                }
            }
            at += bytes;
        }
        pieces
    }

    /// All stitched blocks, with their pieces.
    #[cfg(test)]
    pub(super) fn blocks(&self) -> impl Iterator<Item = (&Stitched, Vec<Piece>)> {
        self.stitched.iter().flatten().map(|block| {
            let range = self.slots[block.view as usize].as_ref().map_or(0, |view| view.range);
            (block, self.pieces(block.view, block.addr - range, block.size))
        })
    }
}

impl View {
    fn note_free(&mut self, frees: u64, stream: u16) {
        match self.freed.iter_mut().find(|(known, _)| *known == stream) {
            Some((_, at)) => *at = frees,
            None => self.freed.push((stream, frees)),
        }
    }

    /// When a block in it was freed last; 0: never.
    fn freed_at(&self) -> u64 {
        self.freed.iter().map(|(_, at)| *at).max().unwrap_or(0)
    }

    /// Whether no queued work uses it, where streams are known to be done with what they freed until `safe`.
    fn is_done(&self, safe: impl Fn(u16) -> u64) -> bool {
        self.freed.iter().all(|(stream, at)| *at <= safe(*stream))
    }

    /// The smallest run of free memory of at least `size` bytes, given what of each chunk is free.
    fn run(&self, at: u32, size: u64, free: impl Fn(u64) -> Ends) -> Option<Run> {
        if self.bytes < size {
            return None;
        }
        let mut best: Option<Run> = None;
        let mut consider = |offset: u64, bytes: u64| {
            if bytes >= size && best.is_none_or(|best| bytes < best.bytes) {
                best = Some(Run {
                    view: at,
                    offset,
                    bytes,
                });
            }
        };
        // The beginning of a stitched block may be in the same chunk as its end. A run uses it once.
        let twice = self.chunks.len() > 1 && self.chunks.first() == self.chunks.last();
        let chunks = &self.chunks[..self.chunks.len() - usize::from(twice)];
        let (mut start, mut length, mut offset) = (0, 0, 0);
        for (home, bytes) in chunks {
            let ends = free(*home);
            if ends.first == *bytes {
                length += bytes;
            } else {
                consider(start, length + ends.first);
                (start, length) = (offset + bytes - ends.last, ends.last);
            }
            offset += bytes;
        }
        consider(start, length);
        best
    }
}

impl Heap {
    /// A run of free memory in a view that a request's stream may have.
    pub(super) fn run_in_views(&mut self, size: u64, stream: u16) -> Option<Run> {
        if self.views.mappings == 0 {
            return None;
        }
        let home = self.segments.get(self.home?)?;
        let unit = self.sizes.granularity;
        let granule = |addr: u64| ((addr - home.addr) / unit) as usize;
        let mut free = std::mem::take(&mut self.views.free);
        free.resize((home.size / unit) as usize, Ends::default());
        let mut touched = Vec::new();
        for (addr, end) in self.free_at_home(stream) {
            for (chunk, size) in chunks_over(home, addr, end) {
                let ends = &mut free[granule(chunk)];
                touched.push(granule(chunk));
                if addr <= chunk {
                    ends.first = end.min(chunk + size) - chunk;
                }
                if end >= chunk + size {
                    ends.last = chunk + size - addr.max(chunk);
                }
            }
        }
        // The newest first: what was side by side lately is likely to be again.
        let newest = self.views.slots.iter().enumerate().rev();
        let views = newest.filter_map(|(at, view)| Some((at as u32, view.as_ref()?)));
        let runs = views.filter_map(|(at, view)| view.run(at, size, |home| free[granule(home)]));
        let found = runs.take(ENOUGH).min_by_key(|run| run.bytes);
        for granule in touched {
            free[granule] = Ends::default();
        }
        self.views.free = free;
        found
    }

    /// Hands out the beginning of a run.
    pub(super) fn place_in(&mut self, run: Run, size: u64) -> (u32, Vec<Piece>) {
        let pieces = self.views.pieces(run.view, run.offset, size);
        (self.views.add_block(run.view, run.offset, size), pieces)
    }

    /// Unmaps the views that no block is in. To be called when no queued work uses them. Memory that is mapped anywhere is not free for
    /// the device, so an error means that nothing of the home segment can be given back now.
    pub(super) fn drop_idle_views(&mut self) -> Result<(), DeviceError> {
        let mut outcome = Ok(());
        for stale in std::mem::take(&mut self.views.stale) {
            outcome = outcome.and(self.give_range_back(stale));
        }
        let idle: Vec<u32> = self.views.idle().map(|(view, _)| view).collect();
        for view in idle {
            outcome = outcome.and(self.drop_view(view));
        }
        outcome
    }

    /// Makes room for another view, from those that are known not to be used by queued work.
    pub(super) fn limit_views(&mut self, mappings: usize) {
        if self.views.mappings + mappings <= MAX_MAPPINGS || self.capturing() {
            return;
        }
        let safe = |stream: u16| self.streams.line(stream).safe;
        let mut idle: Vec<(u64, u32)> = self
            .views
            .idle()
            .filter(|(_, view)| view.is_done(safe))
            .map(|(i, view)| (view.freed_at(), i))
            .collect();
        idle.sort_unstable();
        for (_, view) in idle {
            if self.views.mappings + mappings <= MAX_MAPPINGS / 2 {
                break;
            }
            // What fails is remembered.
            let _ = self.drop_view(view);
        }
    }

    fn drop_view(&mut self, view: u32) -> Result<(), DeviceError> {
        match self.views.remove(view) {
            Some(View { range, bytes, .. }) => self.give_range_back(Stale {
                range,
                bytes,
                mapped: bytes,
            }),
            None => Ok(()),
        }
    }

    /// Unmaps what is mapped in a range and gives the range back. What fails is tried again at the next release; an error is
    /// only what is still mapped.
    pub(super) fn give_range_back(&mut self, mut left: Stale) -> Result<(), DeviceError> {
        if left.mapped > 0 {
            if let Err(error) = self.driver.unmap(left.range, left.mapped) {
                self.views.stale.push(left);
                return Err(error);
            }
            left.mapped = 0;
        }
        if self.driver.unreserve(left.range, left.bytes).is_err() {
            self.views.stale.push(left);
        }
        Ok(())
    }

    /// Unmaps everything, at the end of the heap.
    pub(super) fn drop_all_views(&mut self) {
        for view in 0..self.views.slots.len() as u32 {
            let _ = self.drop_view(view);
        }
        let _ = self.drop_idle_views();
    }

    /// The block of the home segment that an address lies in.
    pub(super) fn block_at(&self, addr: u64) -> Option<u32> {
        let segment = self.segments.get(self.home?)?;
        let granule = (addr.checked_sub(segment.addr)? / self.sizes.granularity) as usize;
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
            let granule = ((addr - segment.addr) / self.sizes.granularity) as usize;
            if granule >= segment.cover.len() {
                segment.cover.resize(granule + 1, NIL);
            }
            let known = &mut segment.cover[granule];
            if *known == NIL || self.blocks[*known].addr > addr {
                *known = b;
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
            let granule = |addr: u64| ((addr - segment.addr) / self.sizes.granularity) as usize;
            let at = granule(addr);
            if segment.cover.get(at) == Some(&b) {
                let same = next != NIL && granule(self.blocks[next].addr) == at;
                segment.cover[at] = if same { next } else { NIL };
            }
        }
    }
}

/// The chunks of a segment that a range overlaps: where they begin, and their sizes.
pub(super) fn chunks_over(segment: &Segment, addr: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let first = segment.chunks.range(..=addr).next_back().map_or(addr, |(at, _)| *at);
    segment.chunks.range(first..end).map(|(at, chunk)| (*at, chunk.size))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of two streams may have been in one view; it must not go while either is busy.
    #[test]
    fn a_view_is_done_when_every_stream_that_used_it_is() {
        let mut view = View {
            range: 0,
            bytes: 0,
            chunks: Vec::new(),
            users: 0,
            freed: Vec::new(),
        };
        assert!(view.is_done(|_| 0), "nothing used it");
        view.note_free(3, 1);
        view.note_free(5, 2);
        view.note_free(4, 1);
        assert_eq!(view.freed_at(), 5);
        for (safe, done) in [([4, 5], true), ([3, 5], false), ([4, 4], false), ([9, 9], true)] {
            assert_eq!(view.is_done(|stream| safe[usize::from(stream) - 1]), done, "{safe:?}");
        }
    }
}
