//! The blocks of a segment one after another, and the free ones among them in their index.

use gpumem_channel::{PoolId, StringId};

use super::Heap;
use super::block::{Block, NIL};
use crate::size::Class;

impl Heap {
    /// Puts a free block into its index.
    #[inline(always)]
    pub(super) fn shelve(&mut self, b: u32) {
        let block = &mut self.blocks[b];
        let (key, stream, class) = (block.key(b), block.stream, block.class);
        block.split_counted = Heap::is_split(block);
        if block.split_counted {
            self.count_split(class.pool(), key.size);
        }
        let place = self.streams.line_mut(stream).free[class as usize].insert(key);
        self.blocks.set_place(b, place);
    }

    /// Takes a free block out of its index. The pool that counted it as an inactive split, if one did.
    #[inline(always)]
    pub(super) fn unshelve(&mut self, b: u32) -> Option<PoolId> {
        let block = &mut self.blocks[b];
        let (key, stream, class) = (block.key(b), block.stream, block.class);
        let split = std::mem::take(&mut block.split_counted);
        if split {
            self.ledger.split_removed(class.pool(), key.size);
        }
        let place = self.blocks.place(b);
        let moved = self.streams.line_mut(stream).free[class as usize].remove(key, place);
        self.blocks.set_place(moved, place);
        split.then_some(class.pool())
    }

    /// Whether a free block is an inactive split: pinned in its segment by neighbours. A virtual segment pins nothing, its chunks can be
    /// given back from anywhere, and PyTorch counts none there either.
    #[inline(always)]
    pub(super) fn is_split(block: &Block) -> bool {
        matches!(block.class, Class::Small | Class::Large) && (block.prev != NIL || block.next != NIL)
    }

    /// Cuts `size` bytes off the front of a block that is in no index; the rest becomes a block with the same state.
    #[inline(always)]
    pub(super) fn cut(&mut self, b: u32, size: u64) -> u32 {
        let block = &mut self.blocks[b];
        let rest = Block {
            addr: block.addr + size,
            size: block.size - size,
            requested: 0,
            freed_at: block.freed_at,
            segment: block.segment,
            prev: b,
            next: block.next,
            tag: StringId(0),
            stream: block.stream,
            class: block.class,
            pool: block.class.pool(),
            state: block.state,
            split_counted: false,
            used: false,
            stitched: NIL,
            record: NIL,
        };
        let (next, segment) = (block.next, block.segment);
        block.size = size;
        let rest = self.blocks.insert(rest);
        self.blocks[b].next = rest;
        self.link_back(next, segment, rest);
        self.cover(rest);
        rest
    }

    /// Makes a block swallow its successor; both are in no index. The successor's slot is cleared.
    pub(super) fn swallow_next(&mut self, b: u32) {
        let gone = self.merge_next(b);
        self.outlet.clear_block(gone);
    }

    /// The same without a word to the channel; the successor's slot. What was nobody's becomes the other one's stream's.
    #[inline(always)]
    pub(super) fn merge_next(&mut self, b: u32) -> u32 {
        let n = self.blocks[b].next;
        let (size, next, freed_at, segment, stream) = {
            let gone = &self.blocks[n];
            (gone.size, gone.next, gone.freed_at, gone.segment, gone.stream)
        };
        let block = &mut self.blocks[b];
        block.size += size;
        block.next = next;
        block.freed_at = block.freed_at.max(freed_at);
        if block.stream != stream && self.streams.is_any(block.stream) {
            block.stream = stream;
        }
        self.link_back(next, segment, b);
        self.uncover(n, next);
        self.blocks.remove(n);
        n
    }

    /// Points what follows back at `b`: the next block, or the segment's end.
    #[inline(always)]
    fn link_back(&mut self, next: u32, segment: u32, b: u32) {
        if next != NIL {
            self.blocks[next].prev = b;
        } else if let Some(segment) = self.segments.get_mut(segment) {
            segment.last = b;
        }
    }
}
