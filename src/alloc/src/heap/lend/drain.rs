//! What is set aside comes back: it joins its free neighbours.

use gpumem_channel::BlockState;

use crate::heap::Heap;
use crate::heap::allocate::Request;
use crate::heap::block::NIL;
use crate::heap::streams::LaneOf;
use crate::size::Class;

/// So many streams may have room for what is set aside of stitched memory, and are looked at each time.
const FEW: usize = 16;

impl Heap {
    /// Has what is set aside on a stream join its free neighbours: the small blocks or the large ones. Whether there was any.
    #[inline]
    pub(in crate::heap) fn drain(&mut self, stream: u16, half: usize) -> bool {
        let line = self.streams.line(stream);
        let stitched = half == 1 && !line.aside.is_empty();
        if stitched {
            self.take_all_apart(stream);
        }
        stitched | (self.has_aside(self.streams.line(stream).lane, half) && self.drain_lane(stream, half))
    }

    /// Whether a stream's lane has anything set aside, small or large.
    #[inline(always)]
    pub(in crate::heap) fn has_aside(&self, lane: LaneOf, half: usize) -> bool {
        matches!(lane, LaneOf::Some(lane) if self.front.has_aside(lane, half))
    }

    #[inline(never)]
    fn drain_lane(&mut self, stream: u16, half: usize) -> bool {
        let LaneOf::Some(lane) = self.streams.line(stream).lane else {
            return false;
        };
        let mut back = std::mem::take(&mut self.returned);
        let (outlet, frees) = (&mut self.outlet, &mut self.frees);
        self.front.with(lane, |lane| {
            outlet.meet(&mut lane.outlet);
            back.extend(std::iter::from_fn(|| lane.take_aside(half)));
            // Segments age by frees, whoever is given the blocks.
            *frees += lane.frees_since();
            if back.iter().any(|record| record.split.is_one()) {
                lane.tell_figures();
            }
        });
        let mut left = back.as_mut_slice();
        while let Some(first) = left.first() {
            let segment = self.blocks[first.block].segment;
            let same = left
                .iter()
                .take_while(|record| self.blocks[record.block].segment == segment);
            let (run, behind) = left.split_at_mut(same.count());
            for record in &mut *run {
                if !record.served {
                    self.streams.line_mut(stream).again[half].did_not_come(record.size);
                }
                self.frees = self.frees.max(record.freed_at);
                let block = &mut self.blocks[record.block];
                (block.record, block.freed_at, block.state) = (NIL, record.freed_at, BlockState::Free);
                block.forget_owner();
                self.note_age(record.block);
                record.block = self.coalesce_quietly(record.block);
            }
            self.tell_free(segment, run.iter().map(|record| record.block));
            left = behind;
        }
        let any = !back.is_empty();
        if any {
            self.tell_rest(false);
        }
        back.clear();
        self.returned = back;
        any
    }

    /// The same for all lanes that may have something for a request.
    pub(in crate::heap) fn drain_for(&mut self, request: &Request) {
        let spread = request.class != Class::Fine || !self.is_full(request);
        // What serves small requests of any size goes on doing so, unless nothing else helps.
        let keeps = self.release_on_oom && !self.capturing() && !self.is_settled() && spread;
        self.drain_those(|heap, stream| !(keeps && heap.streams.line(stream).classes.is_on()));
    }

    /// The same for all lanes.
    pub(crate) fn drain_all(&mut self) {
        self.drain_those(|_, _| true);
    }

    /// The same for all lanes; of small blocks for some.
    fn drain_those(&mut self, small: impl Fn(&Heap, u16) -> bool) {
        let mut from = 0;
        while let Some(stream) = self.streams.next_draining(from) {
            from = stream + 1;
            if small(self, stream) {
                self.drain(stream, 0);
            }
            self.drain(stream, 1);
            if self.streams.draining().len() > FEW {
                self.streams.end_aside(stream);
            }
        }
    }
}
