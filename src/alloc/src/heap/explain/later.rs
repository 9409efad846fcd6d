//! What a request that was refused could have had once the GPU is done with all that is queued, and no graph is captured any more.

use gpumem_channel::{BlockState, SegmentKind};

use super::Cache;
use crate::heap::Heap;
use crate::heap::allocate::Request;
use crate::heap::segment::Segment;
use crate::size::Class;

impl Heap {
    /// What the cache holds then. By a look at every block: for requests that are refused while graphs are captured or the cache is kept.
    pub(super) fn survey_later(&self, request: &Request, sent_to: u16) -> Cache {
        let mut cache = Cache::default();
        // A small request may have a corner of the large ones.
        let may_have = |class: Class| class == request.class || (request.class, class) == (Class::Fine, Class::Chunked);
        for (_, segment) in self.segments.iter() {
            let mine = segment.arena == request.arena;
            let (mut chunks, mut free) = (0, 0);
            self.each_free_later(segment, |addr, bytes| {
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

    /// Does something with every part of a segment that is free as a whole then: where it is, and its bytes.
    fn each_free_later(&self, segment: &Segment, mut work: impl FnMut(u64, u64)) {
        let mut run = (segment.addr, 0);
        let blocks = std::iter::successors(self.blocks.get(segment.first), |block| self.blocks.get(block.next));
        for block in blocks {
            // Of a stitched block the first piece says what becomes of it.
            let whole = self.views.stitched(block.stitched);
            let owner = whole.and_then(|whole| self.blocks.get(*whole.parts.first()?));
            if matches!(owner.unwrap_or(block).state, BlockState::Free | BlockState::PendingFree) {
                run.1 += block.size;
                continue;
            }
            if run.1 > 0 {
                work(run.0, run.1);
            }
            run = (block.addr + block.size, 0);
        }
        if run.1 > 0 {
            work(run.0, run.1);
        }
    }
}
