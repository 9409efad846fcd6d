//! Free memory that lies side by side in a view.

use crate::free::{FreeIndex, Key};
use crate::heap::Heap;
use crate::heap::allocate::Request;
use crate::heap::segment::Segment;
use crate::heap::stitch::cover::chunks_back_over;
use crate::heap::stitch::view::{Piece, View};
use crate::size::Sizes;

/// Free blocks that are looked at, and how many times the bytes that are wanted, if that is more: others take longer to look at than they save in
/// mapping.
const LOOKED_AT: (usize, u64) = (1024, 4);

/// Which of the free blocks that a request's stream may have are looked at for it: all of them, where they are no more than [`LOOKED_AT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) enum Look {
    /// The largest, until enough of them are of use.
    Few,
    /// The largest, down to a size of which and of larger ones there are enough. Those may be of no use, and smaller ones would be: a block
    /// that lies within a chunk cannot be stitched, and of those without a whole chunk a stitched block has two.
    Most,
    /// All: where the request would be refused otherwise. A plan of more pieces need not be better than one of fewer, which comes first.
    All,
}

/// Blocks and bytes that are enough for a request of so many.
fn enough_for(size: u64) -> (usize, u64) {
    let (blocks, times) = LOOKED_AT;
    (blocks, size.saturating_mul(times))
}

/// Runs of free memory that a request chooses the smallest from.
const ENOUGH: usize = 8;

/// Free bytes at the beginning and at the end of a chunk; both are all of it if it is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::heap) struct Ends {
    first: u64,
    last: u64,
}

/// Enough free memory side by side in a view.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) struct Run {
    pub(in crate::heap) view: u32,
    /// Where the view's range begins.
    pub(in crate::heap) range: u64,
    /// From there.
    pub(in crate::heap) offset: u64,
    pub(in crate::heap) bytes: u64,
    /// Address space behind it where more can be mapped.
    pub(in crate::heap) room: u64,
}

/// What of each chunk is free.
#[derive(Clone, Copy)]
struct Free<'a> {
    ends: &'a [Ends],
    /// Where the home segment begins.
    home: u64,
    sizes: &'a Sizes,
}

impl Free<'_> {
    /// Of the one at an address of the home segment.
    #[inline(always)]
    fn of(self, chunk: u64) -> Ends {
        let ends = self.ends.get(self.sizes.granule(chunk - self.home));
        ends.copied().unwrap_or_default()
    }
}

impl View {
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
                    range: self.range,
                    offset,
                    bytes,
                    room: 0,
                });
            }
        };
        // A run uses a chunk once: where all of a ring's is free it is its beginning only, where a part is in use it is both.
        let whole = |(home, bytes): &(u64, u64)| free(*home).first == *bytes;
        let twice = self.is_ring() && self.chunks.first().is_some_and(whole);
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

    /// Free memory at its end, if more can be mapped behind it.
    fn tail(&self, at: u32, free: impl Fn(u64) -> Ends) -> Option<Run> {
        if self.is_ring() || self.mapped != self.bytes {
            return None;
        }
        let mut length = 0;
        for (home, bytes) in self.chunks.iter().rev() {
            let last = free(*home).last;
            length += last;
            if last < *bytes {
                break;
            }
        }
        (length > 0).then_some(Run {
            view: at,
            range: self.range,
            offset: self.bytes - length,
            bytes: length,
            room: self.room - self.bytes,
        })
    }
}

impl Heap {
    /// A run of free memory in a view that a request's stream may have.
    pub(in crate::heap) fn run_in_views(&mut self, (size, look): (u64, Look), stream: u16) -> Option<Run> {
        self.among_free((size, look), stream, |views, free| {
            // From the highest number on, among which are the newest: what was side by side lately is likely to be again.
            let runs = views
                .iter()
                .rev()
                .filter_map(|(at, view)| view.run(*at, size, |home| free.of(home)));
            runs.take(ENOUGH).min_by_key(|run| run.bytes)
        })
    }

    /// The longest run of free memory at the end of a view, where there is room enough behind it.
    pub(in crate::heap) fn longest_tail(&mut self, (size, look): (u64, Look), stream: u16) -> Option<Run> {
        self.among_free((size, look), stream, |views, free| {
            let tails = views
                .iter()
                .filter_map(|(at, view)| view.tail(*at, |home| free.of(home)));
            tails
                .filter(|run| run.bytes + run.room >= size)
                .max_by_key(|run| run.bytes)
        })
    }

    /// Whether some of what a request's stream may have is not [looked at](Heap::each_at_border) for it unless all is.
    pub(in crate::heap) fn has_very_many_free(&self, request: &Request) -> bool {
        let (blocks, bytes) = enough_for(request.size);
        let mut free = self.free_at_home(request.stream).into_iter();
        free.any(|index| index.len() > blocks && index.bytes() > bytes)
    }

    /// Does something with those of these free blocks that reach, or may reach, a border of a chunk, for a request of `size` bytes.
    pub(in crate::heap) fn each_at_border(
        &self,
        home: &Segment,
        index: &FreeIndex,
        (size, look): (u64, Look),
        mut work: impl FnMut(Key),
    ) {
        let unit = self.sizes.granularity;
        let enough = match look {
            Look::Few | Look::Most => enough_for(size),
            Look::All => (usize::MAX, u64::MAX),
        };
        index.each_of_largest(enough, look != Look::Few, |key| {
            // Chunks begin and end at multiples of this.
            let from = key.addr - home.addr;
            let (first, end) = (from.next_multiple_of(unit), from + key.size);
            let granule = |offset: u64| self.sizes.granule(offset);
            let reaches = first <= end && home.may_have_border(granule(first), granule(end));
            if reaches {
                work(key);
            }
            reaches
        });
    }

    /// Looks for something among the views, given what of each chunk is free for a stream.
    fn among_free(
        &mut self,
        of: (u64, Look),
        stream: u16,
        look: impl FnOnce(&[(u32, &View)], Free<'_>) -> Option<Run>,
    ) -> Option<Run> {
        if self.views.mappings == 0 {
            return None;
        }
        let home = self.segments.get(self.home?)?;
        let granule = |addr: u64| self.sizes.granule(addr - home.addr);
        let mut free = std::mem::take(&mut self.views.free);
        free.resize(self.sizes.granule(home.size), Ends::default());
        let mut touched = Vec::new();
        for index in self.free_at_home(stream) {
            self.each_at_border(home, index, of, |Key { addr, size, .. }| {
                let end = addr + size;
                for (chunk, size) in chunks_back_over(home, addr, end) {
                    let ends = &mut free[granule(chunk)];
                    touched.push(granule(chunk));
                    if addr <= chunk {
                        ends.first = end.min(chunk + size) - chunk;
                    }
                    if end >= chunk + size {
                        ends.last = chunk + size - addr.max(chunk);
                    }
                }
            });
        }
        let views = self.views.iter().collect::<Vec<_>>();
        let ends = Free {
            ends: &free,
            home: home.addr,
            sizes: &self.sizes,
        };
        let found = look(&views, ends);
        for granule in touched {
            free[granule] = Ends::default();
        }
        self.views.free = free;
        found
    }

    /// Hands out the beginning of a run.
    pub(in crate::heap) fn place_in(&mut self, run: Run, size: u64) -> (u32, Vec<Piece>) {
        let pieces = self.views.pieces(run.view, run.offset, size);
        (self.views.add_block(run.view, run.offset, size), pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::stitch::view::tests::view_of;

    /// A block that was just mapped so that it ends in the chunk that it begins in is found by its request, and one that would
    /// have that chunk's bytes twice is not.
    #[test]
    fn a_run_may_end_in_the_chunk_that_it_begins_in() {
        let ring = view_of(&[(0, 8), (100, 4), (0, 8)]);
        let run = |first: u64, last: u64, size: u64| {
            let free = move |home: u64| match home {
                0 => Ends { first, last },
                _ => Ends { first: 4, last: 4 },
            };
            ring.run(0, size, free).map(|run| (run.offset, run.bytes))
        };
        assert_eq!(run(3, 2, 9), Some((6, 9)), "end, middle, beginning");
        assert_eq!(run(3, 2, 10), None);
        assert_eq!(run(0, 2, 6), Some((6, 6)));
        assert_eq!(run(3, 0, 7), Some((8, 7)));
        assert_eq!(run(8, 8, 12), Some((0, 12)), "all of it is free");
        assert_eq!(run(8, 8, 13), None);
    }
}
