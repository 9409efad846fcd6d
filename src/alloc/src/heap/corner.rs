//! Small requests that nothing fits while small memory is full: a corner among the large blocks.
//!
//! A program whose small memory is full comes here every few hundred operations. So what the long way (`obtain`) would come to is found by
//! a look at a few figures; and what is set aside does not come back each time only to be lent again.
//!
//! While it is [remembered](super::layout) where large requests went, and may be of use, corners are taken as rarely as can be: one that is
//! elsewhere in each round has what lies around it mapped again.

use super::allocate::Request;
use super::arena::COMMON;
use super::{Grant, Heap};
use crate::free::Key;
use crate::size::{Class, KIB};

/// Most attempts that are left out at a time.
const MOST: u8 = 64;
/// The same while it is remembered where large requests went, and may be of use.
const MOST_REMEMBERED: u8 = 16;
/// A small request of more than this finds no place by such an attempt, mostly: what is set aside is smaller.
const MAY_FIT: u64 = 256 * KIB;

/// Which attempts are left out because those before came to nothing: twice as many each time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    step: u8,
    left: u8,
}

impl Backoff {
    /// Whether the next attempt is left out.
    fn is_to_leave_out(self) -> bool {
        self.left > 0
    }

    /// Whether this attempt is left out.
    fn leaves_out(&mut self) -> bool {
        let out = self.is_to_leave_out();
        self.left -= u8::from(out);
        out
    }

    /// What an attempt came to that was made, where at `most` so many are left out.
    fn tried(&mut self, helped: bool, most: u8) {
        self.step = if helped { 0 } else { (self.step * 2).clamp(1, most) };
        self.left = self.step;
    }
}

impl Heap {
    /// The best block for a small request once what is set aside has joined its neighbours, if an attempt at that is not left out.
    pub(super) fn best_after_drain(&mut self, request: &Request) -> Option<Key> {
        if self.goes_by_class(request) && !self.is_full(request) {
            return None;
        }
        if self.streams.line_mut(request.stream).drains.leaves_out() {
            return None;
        }
        self.streams.line_mut(request.stream).again[0].next_round();
        let any = self.drain(request.stream, 0);
        let best = self.fit(request);
        if any {
            let most = match self.layouts.may_be_of_use() {
                true => MOST_REMEMBERED,
                false => MOST,
            };
            self.streams.line_mut(request.stream).drains.tried(best.is_some(), most);
        }
        best
    }

    /// A block among the large ones for a small request that nothing fits, if the long way would come to that in the end: there is no
    /// other stream to ask, and no more memory for small blocks.
    pub(super) fn allocate_corner(&mut self, request: &Request) -> Option<Grant> {
        if request.class != Class::Fine || request.arena != COMMON || !self.is_full(request) || self.owes_room(request)
        {
            return None;
        }
        let any = self.streams.line(request.stream).any;
        let nobodys = &self.streams.line(any).free[Class::Fine as usize];
        if !nobodys.is_empty() || self.streams.pending > 0 || !self.streams.is_only(request.stream) {
            return None;
        }
        self.drain(request.stream, 1);
        let corner = request.among_large();
        let key = self.fit(&corner)?;
        Some(self.hand_out(key, &corner))
    }

    /// The same before what is set aside has joined its neighbours, where that is left out or would hardly help. What comes again stays lent.
    #[inline(never)]
    pub(super) fn allocate_corner_at_once(&mut self, request: &Request) -> Option<Grant> {
        let hardly_helps = request.size > MAY_FIT && !self.layouts.may_be_of_use();
        if !hardly_helps && !self.streams.line(request.stream).drains.is_to_leave_out() {
            return None;
        }
        let grant = self.allocate_corner(request)?;
        if !hardly_helps {
            self.streams.line_mut(request.stream).drains.leaves_out();
        }
        Some(grant)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use gpumem_channel::StringId;

    use super::*;
    use crate::config::Config;
    use crate::device::{Sim, SimConfig};
    use crate::heap::block::NIL;
    use crate::heap::tests::heap_on;
    use crate::heap::tests::streams::insist;
    use crate::stream::Stream;
    use crate::tag::Tag;

    const MIB: u64 = 1 << 20;

    /// A heap that holds 960 of 1024 MiB, and so many small blocks of 512 KiB that it takes no more memory for such; and the last of these.
    fn full_of_small_ones() -> (Heap, Sim, u32) {
        full_of_small_ones_once(|_| true)
    }

    /// The same of a heap that is so after requests for large blocks.
    fn full_of_small_ones_once(is_so: impl Fn(&Heap) -> bool) -> (Heap, Sim, u32) {
        let sim = Sim::new(SimConfig::default());
        let mut heap = heap_on(&sim, Config::default());
        let large: Vec<u32> = (0..16)
            .map(|_| heap.allocate(64 * MIB, Stream(1), Tag(0)).unwrap().block)
            .collect();
        heap.free(large[7]);
        while !is_so(&heap) {
            let again = heap.allocate(64 * MIB, Stream(1), Tag(0)).unwrap().block;
            heap.free(again);
        }
        let request = small(&mut heap);
        let mut last = NIL;
        while !heap.is_full(&request) || heap.fit(&request).is_some() {
            last = heap.allocate(MIB / 2, Stream(1), Tag(0)).unwrap().block;
        }
        (heap, sim, last)
    }

    fn small(heap: &mut Heap) -> Request {
        let (size, class) = heap.sizes.round(MIB / 2).unwrap();
        let stream = heap.streams.index(Stream(1)).unwrap();
        Request::common(size, (size, class), stream, (Tag(0), StringId(0)))
    }

    #[test]
    fn a_small_request_that_finds_small_memory_full_goes_among_the_large_ones_at_once() {
        let (mut heap, sim, _) = full_of_small_ones();
        let (request, calls) = (small(&mut heap), sim.modelled_ns());
        let grant = heap.allocate_corner(&request).unwrap();
        assert_eq!(heap.blocks[grant.block].class, Class::Chunked);
        assert_eq!(sim.modelled_ns(), calls, "no driver call");
        heap.check();
    }

    #[test]
    fn what_comes_again_stays_lent_while_others_go_among_the_large_ones() {
        let (mut heap, _, last) = full_of_small_ones_once(|heap| !heap.layouts.is_on());
        heap.free(last);
        let lent = insist(&mut heap, Stream(1));
        assert!(heap.front.free(lent.held, true) && !heap.layouts.is_on());
        let request = small(&mut heap);
        let waits = |heap: &Heap| heap.has_aside(heap.streams.line(request.stream).lane, 0);
        assert!(waits(&heap));
        for _ in 0..3 {
            let grant = heap.allocate(request.size, Stream(1), Tag(0)).unwrap();
            assert_eq!(heap.blocks[grant.block].class, Class::Chunked);
        }
        let again = &heap.streams.line(request.stream).again[0];
        assert!(again.comes(lent.size) && waits(&heap));
        heap.check();
    }

    #[test]
    fn while_it_is_remembered_where_large_ones_went_what_is_set_aside_serves_first() {
        let (mut heap, _, last) = full_of_small_ones();
        heap.free(last);
        let lent = insist(&mut heap, Stream(1));
        assert!(heap.front.free(lent.held, true) && heap.layouts.is_on());
        let grant = heap.allocate(MIB / 2, Stream(1), Tag(0)).unwrap();
        assert_eq!(heap.blocks[grant.block].class, Class::Fine);
        heap.check();
    }

    #[test]
    fn meanwhile_they_go_among_the_large_ones_at_once_only_where_an_attempt_is_left_out() {
        let (mut heap, _, _) = full_of_small_ones();
        assert!(heap.layouts.may_be_of_use());
        let request = small(&mut heap);
        assert!(request.size > MAY_FIT && heap.allocate_corner_at_once(&request).is_none());
        let drains = &mut heap.streams.line_mut(request.stream).drains;
        drains.tried(false, MOST_REMEMBERED);
        let grant = heap.allocate_corner_at_once(&request).unwrap();
        assert_eq!(heap.blocks[grant.block].class, Class::Chunked);
        let drains = heap.streams.line(request.stream).drains;
        assert!(!drains.is_to_leave_out(), "this was the attempt");
        heap.check();
    }

    #[test]
    fn where_another_stream_may_have_room_it_is_asked_first() {
        let (mut heap, _, _) = full_of_small_ones();
        heap.allocate(MIB / 2, Stream(2), Tag(0)).unwrap();
        let request = small(&mut heap);
        assert!(heap.allocate_corner(&request).is_none());
        heap.check();
    }

    #[test]
    fn while_small_memory_may_grow_it_does() {
        let (mut heap, _, _) = full_of_small_ones();
        for _ in 0..16 {
            heap.allocate(64 * MIB, Stream(1), Tag(0)).unwrap();
        }
        let request = small(&mut heap);
        assert!(!heap.is_full(&request) && heap.allocate_corner(&request).is_none());
    }

    #[test]
    fn more_attempts_are_left_out_each_time_one_came_to_nothing_and_none_after_one_that_helped() {
        let mut backoff = Backoff::default();
        for left_out in [0, 1, 2, 4, 8, 16, 32, MOST, MOST] {
            for _ in 0..left_out {
                assert!(backoff.leaves_out());
            }
            assert!(!backoff.leaves_out());
            backoff.tried(false, MOST);
        }
        for _ in 0..MOST {
            assert!(backoff.leaves_out());
        }
        backoff.tried(true, MOST);
        assert!(!backoff.leaves_out());
    }
}
