//! Requests that go to a certain place inside a free block.

use gpumem_channel::BlockState;

use super::allocate::Request;
use super::{Grant, Heap};

impl Heap {
    /// Hands out a certain place, if it is part of the free block `b`, and that the stream's own. Of a block that was given back a moment
    /// ago: what was whole before is as good as set aside, and nothing is cut up that a larger request may want.
    #[inline(never)]
    pub(super) fn hand_out_there(&mut self, addr: u64, b: u32, request: &Request) -> Option<Grant> {
        if self.blocks[b].stream != request.stream {
            return None;
        }
        self.hand_out_inside(addr, b, request)
    }

    /// The same, whosever the block is.
    pub(super) fn hand_out_inside(&mut self, addr: u64, b: u32, request: &Request) -> Option<Grant> {
        let block = &self.blocks[b];
        let there = block.addr <= addr && addr + request.size <= block.addr + block.size;
        if block.state != BlockState::Free || block.class != request.class || !there {
            return None;
        }
        let key = block.key(b);
        Some(match addr - key.addr {
            0 => self.hand_out(key, request),
            before if self.is_worth_lending(request) => self.hand_out_behind(b, before, request),
            before => self.hand_out_middle(b, before, request),
        })
    }

    /// What begins after so many bytes of a free block, as if that were a free block of its own.
    fn hand_out_behind(&mut self, b: u32, before: u64, request: &Request) -> Grant {
        let segment = self.blocks[b].segment;
        self.outlet.segment_begin(segment);
        self.unshelve(b);
        let there = self.cut(b, before);
        self.shelve(b);
        self.shelve(there);
        self.show(b);
        // A lane writes only slots that the channel has counted.
        self.show(there);
        // What the two are, before an event that tells only what becomes of one.
        self.tell_rest(false);
        let grant = self.hand_out(self.blocks[there].key(there), request);
        self.outlet.segment_close(segment);
        grant
    }

    /// The same at once, where it is not lent to a lane.
    fn hand_out_middle(&mut self, b: u32, before: u64, request: &Request) -> Grant {
        let slot = self.blocks.vacancy();
        let (block, _) = self.take_from_index(b);
        let there = block.split_off(b, before, slot);
        let (own, stream, class) = (block.key(b), block.stream, block.class);
        let key = there.key(slot);
        self.put_behind(slot, there);
        self.put_in_index(own, stream, class, true);
        let taken = self.take(key, request, false);
        self.count_allocated(request, taken.size);
        let rest = taken.rest.map(|rest| rest.block);
        if let Some(rest) = taken.rest {
            self.put_in_index(rest, stream, class, true);
        }
        self.tell_cut_out(b, taken.block, rest);
        Grant::by_heap(taken.block, taken.addr, taken.size)
    }
}
