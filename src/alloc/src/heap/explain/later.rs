//! What a request that was refused could have had once the GPU is done with all that is queued, and no graph is captured any more.

use gpumem_channel::{BlockState, SegmentKind};

use super::Cache;
use crate::heap::Heap;
use crate::heap::allocate::Request;
use crate::heap::segment::Segment;
use crate::size::Class;

/// Bytes of new memory that a request takes then, of what is no pool's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    /// Beside all that is free.
    pub(super) beside_all: u64,
    /// Beside what a release leaves of that.
    pub(super) after_release: u64,
}

impl Heap {
    /// What the cache holds then. By a look at every block: for requests that are refused while graphs are captured or the cache is kept.
    pub(super) fn survey_later(&self, request: &Request, sent_to: u16) -> Cache {
        let mut cache = Cache::default();
        // A small request may have a corner of the large ones.
        let may_have = |class: Class| class == request.class || (request.class, class) == (Class::Fine, Class::Chunked);
        for (_, segment) in self.segments.iter() {
            let mine = segment.arena == request.arena;
            let (mut chunks, mut free) = (0, 0);
            self.each_free_later(segment, None, |addr, bytes| {
                free += bytes;
                chunks += segment.bytes_within(addr, addr + bytes);
                if mine && may_have(segment.class) && self.may_serve(request.size, bytes) {
                    cache.largest = cache.largest.max(bytes);
                }
            });
            let goes = match segment.kind {
                SegmentKind::Virtual => chunks,
                _ if free == segment.size => free,
                _ => 0,
            };
            if self.arenas.may_shrink(segment.arena) {
                cache.release(goes, mine, self.gives_way(segment.arena, request, sent_to));
            }
        }
        cache
    }

    /// What is missing then: what is free at the end of a segment need not be taken anew, nor what can be stitched.
    pub(super) fn missing_later(&self, request: &Request) -> Missing {
        let pages = |bytes: u64| bytes.next_multiple_of(self.sizes.granularity);
        let least = |(end, pieces): (u64, Vec<(u64, u64)>), released: bool| {
            let stitched = self.missing_beside(request, &pieces, released);
            stitched
                .into_iter()
                .fold(pages(request.size.saturating_sub(end)), u64::min)
        };
        // A wait for the device makes one of what is the stream's and what is nobody's; else they are that only where it is enough.
        let all = self.pieces_later(request, Some(request.stream), |_, bytes, _| bytes);
        let left = self.pieces_later(request, None, |addr, bytes, segment| {
            bytes - segment.bytes_within(addr, addr + bytes)
        });
        Missing {
            beside_all: least(all, false),
            after_release: least(left, true),
        }
    }

    /// The most that is free at the end of a segment then, as `kept` has it, and what can be stitched.
    fn pieces_later(
        &self,
        request: &Request,
        apart: Option<u16>,
        kept: impl Fn(u64, u64, &Segment) -> u64,
    ) -> (u64, Vec<(u64, u64)>) {
        let (mut most, mut pieces) = (0, Vec::new());
        let its = |segment: &Segment| segment.kind == SegmentKind::Virtual && segment.class == request.class;
        for (slot, segment) in self.segments.iter().filter(|(_, segment)| its(segment)) {
            self.each_free_later(segment, apart, |addr, bytes| {
                if self.home == Some(slot) {
                    pieces.push((addr, bytes));
                }
                if addr + bytes == segment.end() {
                    most = most.max(kept(addr, bytes, segment));
                }
            });
        }
        (most, pieces)
    }

    /// Does something with every part of a segment that is free as a whole then: where it is, and its bytes. What is of the stream `apart` and
    /// what is not is no whole.
    fn each_free_later(&self, segment: &Segment, apart: Option<u16>, mut work: impl FnMut(u64, u64)) {
        let mut run = (segment.addr, 0);
        let mut of_it = false;
        let blocks = std::iter::successors(self.blocks.get(segment.first), |block| self.blocks.get(block.next));
        for block in blocks {
            // Of a stitched block the first piece says what becomes of it.
            let whole = self.views.stitched(block.stitched);
            let owner = whole.and_then(|whole| self.blocks.get(*whole.parts.first()?));
            let free = matches!(owner.unwrap_or(block).state, BlockState::Free | BlockState::PendingFree);
            let is_of_it = apart == Some(block.stream);
            if free && (of_it == is_of_it || run.1 == 0) {
                (run.1, of_it) = (run.1 + block.size, is_of_it);
                continue;
            }
            if run.1 > 0 {
                work(run.0, run.1);
            }
            run = match free {
                true => (block.addr, block.size),
                false => (block.addr + block.size, 0),
            };
            of_it = is_of_it;
        }
        if run.1 > 0 {
            work(run.0, run.1);
        }
    }
}
