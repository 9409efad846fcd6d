//! Free and coalesce.

use gpumem_channel::{BlockState, EventKind, StringId};

use super::block::Block;
use super::streams::ANY;
use super::{Heap, NIL};

impl Heap {
    /// The program gives an allocated block back. Its own stream may reuse it at once; if other streams used it, it
    /// waits for them first.
    #[inline]
    pub(crate) fn free(&mut self, b: u32) {
        self.frees += 1;
        let block = &mut self.blocks[b];
        debug_assert_eq!(block.state, BlockState::Allocated);
        block.freed_at = self.frees;
        let size = match block.alias {
            NIL => block.size,
            alias => self.aliases.get(alias).map_or(block.size, |alias| alias.size),
        };
        self.ledger.freed(block.pool, size);
        if block.uses.is_empty() {
            self.complete(b, EventKind::Free);
        } else {
            self.wait_for_users(b);
            self.poll_pending();
        }
    }

    /// Nothing uses the block any more: it joins its free neighbours. `why` is the event that says so.
    #[inline]
    pub(super) fn complete(&mut self, b: u32, why: EventKind) {
        let block = &mut self.blocks[b];
        if block.alias != NIL {
            return self.complete_stitched(b, why);
        }
        self.ledger.completed(block.pool, block.size, block.requested);
        block.state = BlockState::Free;
        let block = &self.blocks[b];
        let (prev, next) = (self.neighbour(block, block.prev), self.neighbour(block, block.next));
        if prev.joins | next.joins {
            return self.complete_joined(b, why);
        }
        let (key, stream, class) = (block.key(b), block.stream, block.class);
        self.streams.line_mut(stream).free[class as usize].insert(key);
        let split = (prev.has_memory | next.has_memory).then_some(class.pool());
        if let Some(pool) = split {
            self.blocks[b].split_counted = true;
            self.ledger.split_added(pool, key.size);
        }
        self.tell_freed(b, split, why);
        self.forget_owner(b);
    }

    /// The rest of [`Heap::complete`] where the structure of the segment changes.
    fn complete_joined(&mut self, b: u32, why: EventKind) {
        let segment = self.blocks[b].segment;
        self.tell_block(why, b);
        self.forget_owner(b);
        self.outlet.segment_begin(segment);
        let b = self.coalesce(b);
        self.show(b);
        self.show_segment(segment);
        self.tell_figures();
    }

    #[inline]
    fn forget_owner(&mut self, b: u32) {
        let block = &mut self.blocks[b];
        block.requested = 0;
        block.pool = block.class.pool();
        block.tag = StringId(0);
    }

    /// Merges a free block that is in no index with its free neighbours and puts the result into the index. What was nobody's may
    /// have stood between it and more of its own.
    #[inline]
    pub(super) fn coalesce(&mut self, mut b: u32) -> u32 {
        while self.joins_next(b) {
            self.unshelve(self.blocks[b].next);
            self.swallow_next(b);
        }
        while self.joins_prev(b) {
            b = self.blocks[b].prev;
            self.unshelve(b);
            self.swallow_next(b);
        }
        self.shelve(b);
        b
    }

    fn joins_next(&self, b: u32) -> bool {
        let block = &self.blocks[b];
        self.neighbour(block, block.next).joins
    }

    fn joins_prev(&self, b: u32) -> bool {
        let block = &self.blocks[b];
        self.neighbour(block, block.prev).joins
    }

    /// What the block in `slot` is to a free block beside it.
    #[inline(always)]
    fn neighbour(&self, block: &Block, slot: u32) -> Neighbour {
        if slot == NIL {
            return Neighbour::default();
        }
        let neighbour = &self.blocks[slot];
        Neighbour {
            joins: neighbour.state == BlockState::Free && (neighbour.stream == block.stream || neighbour.stream == ANY),
            has_memory: neighbour.state != BlockState::Unmapped,
        }
    }
}

/// What a neighbour means to a free block.
#[derive(Clone, Copy, Default)]
struct Neighbour {
    /// They become one block.
    joins: bool,
    /// It pins the free block in its segment.
    has_memory: bool,
}
