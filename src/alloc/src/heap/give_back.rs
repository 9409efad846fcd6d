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
        self.ledger.completed(block.class, block.size, block.requested);
        block.state = BlockState::Free;
        let segment = block.segment;
        if self.joins_prev(b) || self.joins_next(b) {
            self.tell_block(why, b);
            self.forget_owner(b);
            self.outlet.segment_begin(segment);
            let b = self.coalesce(b);
            self.show(b);
            self.show_segment(segment);
            self.tell_figures();
        } else {
            self.shelve(b);
            self.tell_all(why, b);
            self.forget_owner(b);
        }
    }

    #[inline]
    fn forget_owner(&mut self, b: u32) {
        let block = &mut self.blocks[b];
        block.requested = 0;
        block.tag = StringId(0);
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
