//! Where the blocks of a pool are, and places that are taken again: what a program restores a pool by.

use crate::error::Error;
use crate::heap::allocate::Request;
use crate::heap::block::some;
use crate::heap::{Grant, Heap};
use crate::pool::PoolBlock;
use crate::size::{MIN_BLOCK, pool_of};
use crate::tag::Tag;

use gpumem_channel::BlockState;

impl Heap {
    /// What the program holds of an arena, by address.
    pub(crate) fn held_of(&self, arena: u16) -> Vec<PoolBlock> {
        let segments = self.segments.iter().filter(|(_, segment)| segment.arena == arena);
        let blocks = segments.flat_map(|(_, segment)| self.blocks_from(segment.first));
        let blocks = blocks.map(|b| &self.blocks[b]);
        let held = blocks.filter(|block| block.state == BlockState::Allocated);
        let mut held: Vec<PoolBlock> = held
            .map(|block| PoolBlock {
                addr: block.addr,
                bytes: block.size,
                requested: block.requested,
                stream: self.streams.name(block.stream),
            })
            .collect();
        held.sort_unstable_by_key(|block| block.addr);
        held
    }

    /// The blocks of a segment from one on.
    fn blocks_from(&self, first: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(some(first), |b| some(self.blocks[*b].next))
    }

    /// Hands out a certain block of a private arena, if it lies in one that is free and that its stream may have at once.
    pub(crate) fn allocate_at(&mut self, arena: u16, place: &PoolBlock, tag: Tag) -> Result<Grant, Error> {
        let PoolBlock {
            addr,
            bytes,
            requested,
            stream,
        } = *place;
        let line = self.line_of(arena, stream)?;
        let not_free = Error::NotFree { addr, bytes };
        let private = self.arenas.get(arena).is_some_and(|arena| arena.private);
        let possible = private && (1..=bytes).contains(&requested) && (addr | bytes).is_multiple_of(MIN_BLOCK);
        let Some(b) = self.free_around(arena, line, (addr, bytes)).filter(|_| possible) else {
            return Err(not_free);
        };
        let tag = (tag, self.string_of(tag));
        let block = &self.blocks[b];
        let (segment, class) = (block.segment, block.class);
        let request = Request {
            arena,
            pool: pool_of(bytes),
            ..Request::common(requested, (bytes, class), line, tag)
        };
        self.outlet.segment_begin(segment);
        let there = self.take_part(b, (addr, addr + bytes));
        self.show(there);
        // What the parts are, before an event that tells only what becomes of one.
        self.tell_rest(false);
        let taken = self.take(self.blocks[there].key(there), &request, false);
        let grant = self.hand_out_taken(taken, &request);
        self.outlet.segment_close(segment);
        self.pool_granted(grant.block);
        Ok(grant)
    }

    /// The free block that a range of an arena lies in, if a stream may have that at once.
    fn free_around(&self, arena: u16, line: u16, (addr, bytes): (u64, u64)) -> Option<u32> {
        let end = addr.checked_add(bytes)?;
        let mut segments = self.segments.iter().filter(|(_, segment)| segment.arena == arena);
        let (_, segment) = segments.find(|(_, segment)| segment.addr <= addr && end <= segment.end())?;
        let b = self
            .blocks_from(segment.first)
            .find(|b| addr < self.blocks[*b].addr + self.blocks[*b].size)?;
        let block = &self.blocks[b];
        let its = block.stream == line || self.streams.is_any(block.stream);
        (block.is_free() && its && end <= block.addr + block.size).then_some(b)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::Config;
    use crate::device::{Sim, SimConfig};
    use crate::heap::NewPool;
    use crate::heap::tests::heap_on;
    use crate::pool::PoolConfig;
    use crate::stream::Stream;

    const KIB: u64 = 1 << 10;
    const STREAM: Stream = Stream(1);

    #[test]
    fn only_what_is_whole_and_free_and_of_the_pool_is_taken() {
        let mut heap = heap_on(&Sim::new(SimConfig::default()), Config::default());
        let new = NewPool::Private(None);
        let [arena, other] = [0, 1].map(|_| heap.add_arena(new, PoolConfig::default()).unwrap());
        let named = heap.add_arena(NewPool::Named("tenant"), PoolConfig::default()).unwrap();
        let take = |heap: &mut Heap, arena, kib: u64| heap.allocate_in(arena, kib * KIB, STREAM, Tag(0)).unwrap();
        let [first, second, third] = [16, 32, 64].map(|kib| take(&mut heap, arena, kib));
        take(&mut heap, named, 16);
        let [places, of_named] = [arena, named].map(|arena| heap.held_of(arena));
        assert_eq!(
            places.iter().map(|place| place.bytes / KIB).collect::<Vec<_>>(),
            [16, 32, 64]
        );
        let not_free = |heap: &mut Heap, arena, place: &PoolBlock| {
            let refused = matches!(heap.allocate_at(arena, place, Tag(0)), Err(Error::NotFree { .. }));
            heap.check();
            refused
        };
        assert!(not_free(&mut heap, arena, &places[1]), "it is held");
        heap.free(second.block);
        assert!(not_free(&mut heap, other, &places[1]), "another pool's");
        assert!(not_free(&mut heap, arena, &of_named[0]), "another pool's");
        assert!(not_free(&mut heap, named, &of_named[0]), "no private pool's");
        let with = |change: fn(&mut PoolBlock)| {
            let mut place = places[1];
            change(&mut place);
            place
        };
        let odd: [fn(&mut PoolBlock); 7] = [
            |place| place.bytes += 512,
            |place| place.addr -= 512,
            |place| place.addr += 512,
            |place| (place.addr, place.bytes) = (place.addr + 256, 512),
            |place| place.requested = 0,
            |place| place.requested = place.bytes + 1,
            |place| (place.bytes, place.requested) = (u64::MAX - 511, 1),
        ];
        for change in odd {
            assert!(not_free(&mut heap, arena, &with(change)), "{:?}", with(change));
        }
        for grant in [first, third] {
            heap.free(grant.block);
        }
        // In the midst of a block that is free, and then at both ends.
        for at in [1, 0, 2] {
            let grant = heap.allocate_at(arena, &places[at], Tag(0)).unwrap();
            assert_eq!((grant.addr, grant.size), (places[at].addr, places[at].bytes));
            heap.check();
        }
        assert_eq!(heap.held_of(arena), places);
        assert_eq!(heap.pool_figures(arena).requested_bytes.current, 112 * KIB);
    }
}
