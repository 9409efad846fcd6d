//! Reuse across streams.
//!
//! A block freed on stream A may be used by others once an event that A recorded after the free is done: then it is nobody's
//! ([`ANY`](super::streams::ANY)), and any stream may take it at once. A stream's own free block swallows what is nobody's beside it.

use gpumem_channel::BlockState;

use super::Heap;
use super::allocate::Request;
use super::block::NIL;
use crate::free::Key;

impl Heap {
    /// Looks how far the other streams are, and takes from them what they do not use any more. Whether there was anything.
    pub(super) fn reclaim(&mut self, stream: u16) -> bool {
        let mut found = false;
        let arena = self.streams.line(stream).arena;
        let others: Vec<u16> = self.streams.of(arena).filter(|other| *other != stream).collect();
        for other in others {
            if self.streams.line(other).free.iter().all(|index| index.is_empty()) {
                continue;
            }
            self.probe(other);
            found |= self.disown(other);
        }
        found
    }

    /// Makes the free blocks of a stream that it is known not to use any more nobody's. Whether there was one.
    pub(super) fn disown(&mut self, stream: u16) -> bool {
        let line = self.streams.line(stream);
        let any = line.any;
        let done: Vec<u32> = line
            .free
            .iter()
            .flat_map(|index| index.at_least(1))
            .map(|key| key.block)
            .filter(|b| self.blocks[*b].freed_at <= line.safe)
            .collect();
        for b in &done {
            // Blocks of one stream are never neighbours, so none of them goes on the way. What is nobody's joins the like only:
            // a neighbour that its stream still uses would take it back.
            let segment = self.blocks[*b].segment;
            self.outlet.segment_begin(segment);
            self.unshelve(*b);
            let block = &mut self.blocks[*b];
            if let Some(segment) = self.segments.get_mut(segment) {
                segment.used_at = segment.used_at.max(block.freed_at);
            }
            block.stream = any;
            block.freed_at = 0;
            let b = self.coalesce(*b);
            self.show(b);
            self.outlet.segment_close(segment);
        }
        self.tell_rest(false);
        !done.is_empty()
    }

    /// Lets the stream's free blocks swallow what is nobody's beside them, if one of them grows large enough: the smallest that does.
    /// Whether one did.
    pub(super) fn absorb(&mut self, request: &Request) -> bool {
        let any = self.streams.line(request.stream).any;
        let size_of = |b: u32| self.free_bytes_of(b, any);
        // By what is nobody's: there is little of it where a stream has much of its own, and often none.
        let nobodys = self.streams.line(any).free[request.class as usize].at_least(1);
        let beside = nobodys.flat_map(|key| [self.blocks[key.block].prev, self.blocks[key.block].next]);
        let own = beside.filter(|b| *b != NIL && self.is_free_of(*b, request.stream));
        let grown = own.map(|b| (self.blocks[b].key(b), self.blocks[b].prev, self.blocks[b].next));
        let enough = grown.filter(|(key, prev, next)| key.size + size_of(*prev) + size_of(*next) >= request.size);
        let Some((Key { block, .. }, ..)) = enough.min() else {
            return false;
        };
        let segment = self.blocks[block].segment;
        self.outlet.segment_begin(segment);
        self.unshelve(block);
        let b = self.coalesce_with_all(block);
        self.show(b);
        self.outlet.segment_close(segment);
        self.tell_rest(false);
        true
    }

    fn is_free_of(&self, b: u32, stream: u16) -> bool {
        let block = &self.blocks[b];
        block.state == BlockState::Free && block.stream == stream
    }

    /// Bytes of a block if a stream may have it at once.
    pub(super) fn free_bytes_of(&self, b: u32, stream: u16) -> u64 {
        if b == NIL {
            return 0;
        }
        let block = &self.blocks[b];
        let its = block.stream == stream || self.streams.line(stream).any == block.stream;
        let may = block.state == BlockState::Free && its;
        if may { block.size } else { 0 }
    }
}
