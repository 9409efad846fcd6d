//! Free and coalesce.

use gpumem_channel::{BlockState, EventKind};

use super::arena::COMMON;
use super::{Heap, NIL};
use crate::size::half;

impl Heap {
    /// The program gives an allocated block back. Its own stream may reuse it at once; if other streams used it, it
    /// waits for them first, and [errands](Heap::take_errands) are left.
    #[inline]
    pub(crate) fn take_back(&mut self, b: u32) {
        if self.blocks[b].record != NIL {
            return self.free_of_lane(b);
        }
        self.free_held(b);
    }

    /// The same for a block that is lent to a lane.
    #[inline(never)]
    fn free_of_lane(&mut self, b: u32) {
        if !self.free_lent(b) {
            self.free_held(b);
        }
    }

    /// The same for a block that is not.
    #[inline(always)]
    fn free_held(&mut self, b: u32) {
        self.frees += 1;
        if self.behind {
            self.note_given_back(b);
        }
        let block = &mut self.blocks[b];
        debug_assert_eq!(block.state, BlockState::Allocated);
        block.freed_at = self.frees;
        let (addr, size, stream) = (block.addr, block.size, block.stream);
        let common = self.streams.line(stream).arena == COMMON;
        if block.used | !common | (block.stitched != NIL) {
            return self.free_slow(b);
        }
        self.ledger.freed(block.pool, size, block.requested);
        self.leave_room_to_lane(stream);
        let joined = self.join_and_tell(b, EventKind::Free);
        self.streams.line_mut(stream).again[half(size)].given_back(size, addr, joined);
    }

    /// The same for a stitched block, for one of a pool, and for one that other streams used.
    #[inline(never)]
    fn free_slow(&mut self, b: u32) {
        self.pool_freed(b);
        let size = self.size_of(b);
        let arena = self.arena_of(b);
        let block = &self.blocks[b];
        let (pool, requested) = (block.pool, block.requested);
        if block.used {
            self.ledger.waits(pool, size);
            self.wait_for_users(b);
        } else {
            self.ledger.freed(pool, size, requested);
            self.complete(b, EventKind::Free);
            self.pool_done(arena, size);
        }
    }

    /// Bytes of a block, of all its pieces if it is stitched.
    pub(crate) fn size_of(&self, b: u32) -> u64 {
        let block = &self.blocks[b];
        self.views
            .stitched(block.stitched)
            .map_or(block.size, |whole| whole.size)
    }

    /// Nothing uses the block any more: it joins its free neighbours. `why` is the event that says so.
    pub(super) fn complete(&mut self, b: u32, why: EventKind) {
        if self.blocks[b].stitched != NIL {
            return self.complete_stitched(b, why);
        }
        let block = &self.blocks[b];
        let (addr, size, stream) = (block.addr, block.size, block.stream);
        let joined = self.join_and_tell(b, why);
        self.streams.line_mut(stream).again[half(size)].given_back(size, addr, joined);
    }

    /// A block that is not stitched is told of as free, and is. What it is part of now. Where `why` is a constant, what that is in the
    /// channel needs no table.
    #[inline(always)]
    fn join_and_tell(&mut self, b: u32, why: EventKind) -> u32 {
        let due = self.tell_freed(why, b);
        let block = &mut self.blocks[b];
        block.forget_owner();
        block.state = BlockState::Free;
        self.note_age(b);
        let b = self.join_neighbours(b);
        self.tell_joined(b, due);
        self.gone.clear();
        b
    }

    /// Puts a block that is in no index among the free ones of its segment.
    pub(super) fn join_in(&mut self, b: u32) {
        let block = &mut self.blocks[b];
        block.state = BlockState::Free;
        let segment = block.segment;
        self.note_age(b);
        self.outlet.segment_begin(segment);
        let b = self.coalesce(b);
        self.show(b);
        self.outlet.segment_close(segment);
    }

    /// [`coalesce`](Heap::coalesce) with what is nobody's in any case.
    pub(super) fn coalesce_with_all(&mut self, b: u32) -> u32 {
        let swallows = std::mem::replace(&mut self.swallows, true);
        let b = self.coalesce(b);
        self.swallows = swallows;
        b
    }

    /// Merges a free block that is in no index with its free neighbours and puts the result into the index. What was nobody's may
    /// have stood between it and more of its own.
    pub(super) fn coalesce(&mut self, b: u32) -> u32 {
        let b = self.coalesce_quietly(b);
        for slot in self.gone.drain(..) {
            self.outlet.clear_block(slot);
        }
        b
    }

    /// The same without a word to the channel about those that are in `gone` then.
    #[inline(never)]
    pub(super) fn coalesce_quietly(&mut self, b: u32) -> u32 {
        self.join_neighbours(b)
    }

    /// The same where it is done most often.
    #[inline(always)]
    fn join_neighbours(&mut self, mut b: u32) -> u32 {
        let stream = self.blocks[b].stream;
        loop {
            let next = self.blocks[b].next;
            if !self.joins(stream, next) {
                break;
            }
            let part = self.take_from_index(next).0.part();
            self.join_part(b, next, part);
            self.gone.push(next);
        }
        loop {
            let prev = self.blocks[b].prev;
            if !self.joins(stream, prev) {
                break;
            }
            self.take_from_index(prev);
            let part = self.blocks[b].part();
            self.join_part(prev, b, part);
            self.gone.push(b);
            b = prev;
        }
        let block = &self.blocks[b];
        let (key, pinned) = (block.key(b), block.prev != NIL || block.next != NIL);
        self.put_in_index(key, stream, block.class, pinned);
        b
    }

    /// Whether a block that becomes free joins one of its neighbours.
    #[inline(always)]
    pub(super) fn joins_any(&self, b: u32) -> bool {
        let block = &self.blocks[b];
        self.joins(block.stream, block.next) || self.joins(block.stream, block.prev)
    }

    /// Whether a free block of a stream and its neighbour become one.
    #[inline(always)]
    fn joins(&self, stream: u16, neighbour: u32) -> bool {
        let Some(neighbour) = self.blocks.get(neighbour) else {
            return false;
        };
        neighbour.is_free() && (neighbour.stream == stream || self.swallows && self.streams.is_any(neighbour.stream))
    }
}
