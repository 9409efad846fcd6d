//! Free and coalesce.

use gpumem_channel::{BlockState, EventKind, StringId};

use super::{Heap, NIL};

impl Heap {
    /// The program gives an allocated block back. Its own stream may reuse it at once; if other streams used it, it
    /// waits for them first.
    #[inline]
    pub(crate) fn free(&mut self, b: u32) {
        debug_assert_eq!(self.blocks[b].state, BlockState::Allocated);
        self.frees += 1;
        let block = &mut self.blocks[b];
        block.freed_at = self.frees;
        self.ledger.freed(block.class, block.size);
        let waits = !block.uses.is_empty();
        if self.outlet.is_on() {
            self.tell_block(EventKind::Free, b);
        }
        if waits {
            self.wait_for_users(b);
        } else {
            self.complete(b);
        }
        self.tell_figures();
    }

    /// Nothing uses the block any more: it joins its free neighbours.
    #[inline]
    pub(super) fn complete(&mut self, b: u32) {
        let block = &mut self.blocks[b];
        self.ledger.completed(block.class, block.size, block.requested);
        block.state = BlockState::Free;
        block.requested = 0;
        block.tag = StringId(0);
        let segment = block.segment;
        if self.joins_prev(b) || self.joins_next(b) {
            self.outlet.segment_begin(segment);
            let b = self.coalesce(b);
            self.show(b);
            self.show_segment(segment);
        } else {
            self.shelve(b);
            self.show(b);
        }
    }

    /// Merges a free block that is in no index with its free neighbours and puts the result into the index.
    #[inline]
    pub(super) fn coalesce(&mut self, mut b: u32) -> u32 {
        if self.joins_next(b) {
            self.unshelve(self.blocks[b].next);
            self.swallow_next(b);
        }
        if self.joins_prev(b) {
            b = self.blocks[b].prev;
            self.unshelve(b);
            self.swallow_next(b);
        }
        self.shelve(b);
        b
    }

    fn joins_next(&self, b: u32) -> bool {
        self.same_kind(b, self.blocks[b].next)
    }

    fn joins_prev(&self, b: u32) -> bool {
        self.same_kind(b, self.blocks[b].prev)
    }

    #[inline]
    fn same_kind(&self, b: u32, neighbour: u32) -> bool {
        neighbour != NIL
            && self.blocks[neighbour].state == BlockState::Free
            && self.blocks[neighbour].stream == self.blocks[b].stream
    }
}
