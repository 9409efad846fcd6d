//! What a report says of the cache against a walk over all blocks.

use gpumem_channel::{BlockState, PoolId, StringId};

use super::*;
use crate::heap::COMMON;
use crate::heap::block::NIL;
use crate::tag::Tag;

const MIB: u64 = 1 << 20;

impl Heap {
    /// Panics unless any report would say what a walk finds.
    pub(in crate::heap) fn check_survey(&self) {
        let pools = self.arenas.iter().map(|(arena, _)| arena);
        for arena in std::iter::once(COMMON).chain(pools) {
            for class in [Class::Small, Class::Large, Class::Chunked, Class::Fine] {
                for size in [512, 24 * MIB] {
                    let request = Request {
                        requested: size,
                        size,
                        class,
                        pool: PoolId::LARGE,
                        stream: 0,
                        arena,
                        tag: StringId(0),
                        name: Tag(0),
                    };
                    assert_eq!(self.survey(&request, arena), self.walk(&request));
                }
            }
        }
    }

    fn walk(&self, request: &Request) -> Cache {
        let mut cache = Cache::default();
        let any = self.streams.line(request.stream).any;
        for (_, segment) in self.segments.iter() {
            let mine = segment.arena == request.arena;
            let mut all_free = true;
            let mut whole_chunks = 0;
            let mut b = segment.first;
            while b != NIL {
                let block = &self.blocks[b];
                match block.state {
                    BlockState::Free => {
                        cache.free += block.size;
                        whole_chunks += segment.bytes_within(block.addr, block.addr + block.size);
                        let may_have = block.stream == request.stream || block.stream == any;
                        if may_have && block.class == request.class && self.may_serve(request.size, block.size) {
                            cache.largest = cache.largest.max(block.size);
                        }
                    }
                    _ => all_free = false,
                }
                b = block.next;
            }
            let mut released = if all_free { segment.size } else { 0 };
            if segment.kind == SegmentKind::Virtual {
                cache.joinable += whole_chunks;
                released = whole_chunks;
            }
            if self.arenas.may_shrink(segment.arena) {
                *(if mine { &mut cache.releasable } else { &mut cache.others }) += released;
                if self.arenas.victims(request.arena).contains(&segment.arena) {
                    cache.gives_way += released;
                }
            }
        }
        cache
    }
}
