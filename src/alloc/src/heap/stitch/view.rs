//! Views: address ranges at which chunks are mapped a second time, in another order, so that free pieces that lie apart at home are
//! side by side there.
//!
//! Physical memory has one home each, in the one virtual segment for large requests; what is free and what is held is said there. A
//! stitched block is held as several pieces at home and used at its address in a view. When it is freed its pieces are free like
//! any others, and the view stays mapped: any later request that finds enough free memory side by side in one of the views has it
//! without a driver call. So a program that goes on doing the like maps less and less.

use crate::device::Driver;
use crate::error::DeviceError;

/// Where a chunk is at home that a view does not map any more.
pub(in crate::heap) const GONE: u64 = u64::MAX;

/// Chunks mapped side by side.
#[derive(Debug)]
pub(in crate::heap) struct View {
    /// The address range.
    pub(in crate::heap) range: u64,
    /// Bytes that its chunks have, that are mapped, which is more after a failure, and that are reserved.
    pub(in crate::heap) bytes: u64,
    pub(in crate::heap) mapped: u64,
    pub(in crate::heap) room: u64,
    /// Where its chunks are at home, or [`GONE`], and their sizes.
    pub(in crate::heap) chunks: Vec<(u64, u64)>,
    /// And of those that are mapped behind them after a failure.
    pub(in crate::heap) behind: Vec<u64>,
    /// Stitched blocks in it.
    pub(in crate::heap) users: u32,
    /// No other view ever has it, but for one four thousand million views later.
    pub(in crate::heap) serial: u32,
    /// The streams that blocks in it were freed on, with the heap's free counter when each did so last: their queued work may use the
    /// addresses yet.
    pub(in crate::heap) freed: Vec<(u16, u64)>,
}

/// Chunks of a view side by side, which are to be unmapped while the view stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) struct Part {
    /// Where it begins in the view's range, and its bytes.
    pub(in crate::heap) offset: u64,
    pub(in crate::heap) bytes: u64,
    /// Its first chunk, and how many there are.
    pub(in crate::heap) first: usize,
    pub(in crate::heap) count: usize,
}

/// A part of the home segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) struct Piece {
    pub(in crate::heap) addr: u64,
    pub(in crate::heap) size: u64,
}

/// A block that is used in a view.
#[derive(Debug)]
pub(in crate::heap) struct Stitched {
    pub(in crate::heap) view: u32,
    pub(in crate::heap) addr: u64,
    pub(in crate::heap) size: u64,
    /// The blocks of its pieces at home.
    pub(in crate::heap) parts: Vec<u32>,
}

/// What is left of a view when the driver fails.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) struct Stale {
    /// The reserved range and its bytes: none of a part, whose view has the range.
    pub(in crate::heap) range: u64,
    pub(in crate::heap) bytes: u64,
    /// Bytes from its beginning that are mapped.
    pub(in crate::heap) mapped: u64,
}

impl Stale {
    /// Unmaps what is mapped and gives the range back. Whether that went, too; an error is only what is still mapped.
    pub(in crate::heap) fn go(&mut self, driver: &dyn Driver) -> Result<bool, DeviceError> {
        if self.mapped > 0 {
            driver.unmap(self.range, self.mapped)?;
            self.mapped = 0;
        }
        Ok(self.bytes == 0 || driver.unreserve(self.range, self.bytes).is_ok())
    }
}

impl View {
    /// Whether its last chunk is its first one, too: the beginning of a stitched block may be in the same chunk as its end.
    pub(in crate::heap) fn is_ring(&self) -> bool {
        let first = self.chunks.first().filter(|(home, _)| *home != GONE);
        self.chunks.len() > 1 && first.is_some() && first == self.chunks.last()
    }

    /// Where the chunks of its range are at home, also of those behind it, or [`GONE`].
    pub(in crate::heap) fn homes(&self) -> impl Iterator<Item = u64> {
        let chunks = self.chunks.iter().map(|(home, _)| *home);
        chunks.chain(self.behind.iter().copied())
    }

    /// How many chunks it maps.
    pub(in crate::heap) fn mappings(&self) -> usize {
        self.chunks.iter().filter(|(home, _)| *home != GONE).count()
    }

    /// What it maps of which this is true, given where that begins and ends in it: as runs, with the first chunk of each and how many they are.
    fn runs_of(&self, is: impl Fn(u64, u64) -> bool) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut offset = 0;
        for (at, (home, size)) in self.chunks.iter().enumerate() {
            let end = offset + size;
            if *home != GONE && is(offset, end) {
                match parts.last_mut().filter(|part| part.offset + part.bytes == offset) {
                    Some(part) => (part.bytes, part.count) = (part.bytes + size, part.count + 1),
                    None => parts.push(Part {
                        offset,
                        bytes: *size,
                        first: at,
                        count: 1,
                    }),
                }
            }
            offset = end;
        }
        parts
    }

    /// All that it maps.
    pub(in crate::heap) fn all_parts(&self) -> Vec<Part> {
        self.runs_of(|_, _| true)
    }

    /// The same, if that is not one run from its beginning on.
    pub(in crate::heap) fn pieces_left(&self) -> Option<Vec<Part>> {
        if self.mappings() == self.chunks.len() {
            return None;
        }
        let mut parts = self.all_parts();
        if self.mapped > self.bytes {
            parts.push(Part {
                offset: self.bytes,
                bytes: self.mapped - self.bytes,
                first: self.chunks.len(),
                count: 0,
            });
        }
        Some(parts)
    }

    /// The parts of it that none of these blocks is in, given in order by where they begin and end in it.
    pub(in crate::heap) fn parts_beside(&self, blocks: &[(u64, u64)]) -> Vec<Part> {
        self.runs_of(|from, to| !is_any_in(blocks, from, to))
    }

    /// The parts of it that they are in, by whole chunks.
    pub(in crate::heap) fn parts_with(&self, blocks: &[(u64, u64)]) -> Vec<Part> {
        self.runs_of(|from, to| is_any_in(blocks, from, to))
    }

    /// Where the chunks of a part of it are at home.
    pub(in crate::heap) fn homes_in(&self, part: Part) -> impl Iterator<Item = u64> {
        let chunks = self.chunks.iter().skip(part.first).take(part.count);
        chunks.map(|(home, _)| *home)
    }

    pub(in crate::heap) fn note_free(&mut self, frees: u64, stream: u16) {
        match self.freed.iter_mut().find(|(known, _)| *known == stream) {
            Some((_, at)) => *at = frees,
            None => self.freed.push((stream, frees)),
        }
    }

    /// When a block in it was freed last; 0: never.
    pub(in crate::heap) fn freed_at(&self) -> u64 {
        self.freed.iter().map(|(_, at)| *at).max().unwrap_or(0)
    }

    /// Whether no queued work uses it, where streams are known to be done with what they freed until `safe`.
    pub(in crate::heap) fn is_done(&self, safe: impl Fn(u16) -> u64) -> bool {
        self.freed.iter().all(|(stream, at)| *at <= safe(*stream))
    }
}

/// Whether one of these blocks, which do not overlap and are in order, lies in a range, if only in part. A view may have thousands of them, and
/// more chunks.
fn is_any_in(blocks: &[(u64, u64)], from: u64, to: u64) -> bool {
    let next = blocks.partition_point(|(_, end)| {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        *end <= from
    });
    blocks.get(next).is_some_and(|(begin, _)| *begin < to)
}

#[cfg(test)]
pub(in crate::heap) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// How often a block was looked at for a chunk.
        pub(in crate::heap) static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    /// A view of chunks at home, given by where they are and by their sizes.
    pub(in crate::heap) fn view_of(chunks: &[(u64, u64)]) -> View {
        let bytes = chunks.iter().map(|(_, size)| size).sum();
        View {
            range: 0,
            bytes,
            mapped: bytes,
            room: bytes,
            chunks: chunks.to_vec(),
            behind: Vec::new(),
            users: 0,
            serial: 0,
            freed: Vec::new(),
        }
    }

    /// Blocks of two streams may have been in one view; it must not go while either is busy.
    #[test]
    fn a_view_is_done_when_every_stream_that_used_it_is() {
        let mut view = view_of(&[]);
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
