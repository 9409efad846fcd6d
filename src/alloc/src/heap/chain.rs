//! The blocks of a segment one after another, and the free ones among them in their index.

use gpumem_channel::Split;

use super::Heap;
use super::block::{Block, NIL, Part};
use crate::free::Key;
use crate::size::Class;

impl Heap {
    /// Puts a free block into its index.
    pub(super) fn shelve(&mut self, b: u32) {
        let block = &self.blocks[b];
        let (key, pinned) = (block.key(b), block.prev != NIL || block.next != NIL);
        self.put_in_index(key, block.stream, block.class, pinned);
    }

    /// The same of one of which all this is known. `pinned`: it has neighbours in its segment.
    #[inline(always)]
    pub(super) fn put_in_index(&mut self, key: Key, stream: u16, class: Class, pinned: bool) {
        if class.pins() & pinned {
            self.blocks[key.block].split_counted = true;
            self.count_split(class.pool(), key.size);
        }
        let place = self.streams.line_mut(stream).free[class as usize].insert(key);
        self.blocks.places()[key.block as usize] = place;
    }

    /// Takes a free block out of its index.
    pub(super) fn unshelve(&mut self, b: u32) {
        self.take_from_index(b);
    }

    /// The same. It, and which pool counted it as an inactive split.
    #[inline(always)]
    pub(super) fn take_from_index(&mut self, b: u32) -> (&mut Block, Split) {
        let (block, places) = self.blocks.with_places(b);
        let (key, class) = (block.key(b), block.class);
        let mut split = Split::NO;
        if std::mem::take(&mut block.split_counted) {
            split = Split::of(class.pool());
            self.ledger.split_removed(class.pool(), key.size);
        }
        let place = places[b as usize];
        let moved = self.streams.line_mut(block.stream).free[class as usize].remove(key, place);
        places[moved as usize] = place;
        (block, split)
    }

    /// Whether a free block is an inactive split: pinned in its segment by neighbours. A virtual segment pins nothing, its chunks can be
    /// given back from anywhere, and PyTorch counts none there either.
    #[inline(always)]
    pub(super) fn is_split(block: &Block) -> bool {
        block.class.pins() && (block.prev != NIL || block.next != NIL)
    }

    /// Cuts `size` bytes off the front of a block that is in no index; the rest becomes a block with the same state.
    pub(super) fn cut(&mut self, b: u32, size: u64) -> u32 {
        let slot = self.blocks.vacancy();
        let rest = self.blocks[b].split_off(b, size, slot);
        self.put_behind(slot, rest);
        slot
    }

    /// Cuts a part out of a free block, or takes all of it: it is in no index. What is before it keeps the number. To be called within a
    /// bracket around the changes of its segment.
    pub(super) fn take_part(&mut self, b: u32, (from, to): (u64, u64)) -> u32 {
        let (addr, end) = (self.blocks[b].addr, self.blocks[b].addr + self.blocks[b].size);
        self.unshelve(b);
        let mut part = b;
        if from > addr {
            part = self.cut(b, from - addr);
            self.shelve(b);
            self.show(b);
        }
        if to < end {
            let rest = self.cut(part, to - from);
            self.shelve(rest);
            self.show(rest);
        }
        part
    }

    /// Puts a block into its slot, and that among those of its segment.
    #[inline(always)]
    pub(super) fn put_behind(&mut self, slot: u32, block: Block) {
        let (addr, segment, next) = (block.addr, block.segment, block.next);
        self.blocks[slot] = block;
        self.link_back(next, segment, slot);
        self.cover(slot, addr, segment);
    }

    /// Makes a block swallow its successor; both are in no index. The successor's slot is cleared.
    pub(super) fn swallow_next(&mut self, b: u32) {
        let gone = self.blocks[b].next;
        let part = self.blocks[gone].part();
        self.join_part(b, gone, part);
        self.outlet.clear_block(gone);
    }

    /// Makes a block of its own and its successor, which was this; both are in no index. The channel is not told. What was nobody's becomes
    /// the other one's stream's.
    #[inline(always)]
    pub(super) fn join_part(&mut self, b: u32, gone: u32, part: Part) {
        let block = &mut self.blocks[b];
        let segment = block.segment;
        block.size += part.size;
        block.next = part.next;
        block.freed_at = block.freed_at.max(part.freed_at);
        if block.stream != part.stream && self.streams.is_any(block.stream) {
            block.stream = part.stream;
        }
        self.link_back(part.next, segment, b);
        self.uncover(gone, part.addr, segment, part.next);
        self.blocks.vacate(gone);
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
