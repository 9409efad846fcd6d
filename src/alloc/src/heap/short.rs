//! The short way: a request that the best of the free blocks serves that its stream may have at once. Everything that needs more than
//! that takes the long way, from the start.

use gpumem_channel::StringId;

use super::allocate::Request;
use super::streams::LaneOf;
use super::{Grant, Heap};
use crate::size::{Class, half};
use crate::stream::Stream;
use crate::tag::Tag;

impl Heap {
    /// A block for a request that no lane had one for, as `form` has it. `None`: the long way may find one, or this one once it is known
    /// what it [wonders](super::ask::wonder).
    #[inline(always)]
    pub(crate) fn allocate_short<R>(
        &mut self,
        requested: u64,
        stream: Stream,
        tag: Tag,
        form: fn(Grant) -> R,
    ) -> Option<R> {
        let (size, class) = self.sizes.round_quick(requested)?;
        let index = self.streams.known(stream)?;
        let string = self.known_string(tag)?;
        if self.layouts.remembers(size) {
            return self.allocate_remembered_short(requested, (size, class), index, (tag, string), form);
        }
        let size = self.block_size(index, size, class);
        let request = Request::common(requested, (size, class), index, (tag, string));
        self.allocate_at_once(&request, false, form)
    }

    /// The same from a pool, which lends nothing and remembers nothing.
    #[inline(always)]
    pub(crate) fn allocate_short_in(&mut self, pool: u16, requested: u64, stream: Stream, tag: Tag) -> Option<Grant> {
        let rounded = self.sizes.round_plain_quick(requested)?;
        let line = self.streams.known_in(pool, stream)?;
        let string = self.known_string(tag)?;
        let request = Request {
            arena: pool,
            ..Request::common(requested, rounded, line, (tag, string))
        };
        let grant = self.allocate_at_once(&request, true, |grant| grant)?;
        self.pool_granted(grant.block);
        Some(grant)
    }

    /// The same for a request that is remembered: it goes where it was, if it can.
    #[inline(never)]
    fn allocate_remembered_short<R>(
        &mut self,
        requested: u64,
        rounded: (u64, Class),
        stream: u16,
        tag: (Tag, StringId),
        form: fn(Grant) -> R,
    ) -> Option<R> {
        let request = &Request::common(requested, rounded, stream, tag);
        self.note_moment();
        let repeats = self.layouts.may_repeat(request.stream);
        if repeats {
            if let Some(grant) = self.allocate_as_before(request) {
                return Some(form(grant));
            }
            if self.wonders() {
                return None;
            }
        }
        let grant = self.allocate_at_once(request, true, |grant| grant);
        match &grant {
            Some(grant) if repeats => self.note_placement(grant, request),
            Some(grant) => self.note_as_new(grant, request),
            None if repeats => self.layouts.was_asked(request.stream, request.size, None),
            None => {}
        }
        grant.map(form)
    }

    /// The request stays in registers: who is called rarely gets a copy of it. So does what comes of it, as `form` has it.
    ///
    /// `thorough`: a block of just its size is no better than another one that was given back a moment ago.
    #[inline(always)]
    fn allocate_at_once<R>(&mut self, request: &Request, thorough: bool, form: impl Fn(Grant) -> R) -> Option<R> {
        let (size, half) = (request.size, half(request.size));
        let line = self.streams.line_mut(request.stream);
        if !line.aside.is_empty() & (half == 1) {
            return None;
        }
        if let LaneOf::Some(lane) = line.lane
            && self.front.has(lane, size)
        {
            return self.allocate_from_lane(&{ *request }).map(form);
        }
        if request.class == Class::Fine && line.classes.asked() {
            self.judge_classes(request.stream);
            return None;
        }
        let again = line.again[half].asked(size).filter(|_| half == 1);
        if let Some(again) = again {
            return self.allocate_again(again, &{ *request }).map(form);
        }
        // What is remembered is never lent, and hardly any size comes again.
        let mut may_lend = !thorough && line.is_worth_lending(half, size, self.frees);
        let low = self.sizes.goes_low(request.class, size);
        let (any, own) = (line.any, line.free[request.class as usize].fit(size, low));
        let Some(mut key) = self.fit_beside(own, any, low, request) else {
            return self.allocate_corner_at_once(&{ *request }).map(form);
        };
        let well = !thorough && key.size == size;
        if half == 1 && !well && self.may_fit_better(request, key.size) {
            key = self.best_of_all(&{ *request })?;
            may_lend = !thorough;
        }
        let taken = self.take_out(key, request);
        if may_lend && let Some(lane) = self.lane_for(taken.block, request, taken.size) {
            return Some(form(self.lend_taken(taken, lane, &{ *request })));
        }
        Some(form(self.hand_out_taken(taken, request)))
    }

    /// A large request of a size of which a block was given back just before: there, or where it fits best.
    #[inline(never)]
    fn allocate_again(&mut self, (addr, b): (u64, u32), request: &Request) -> Option<Grant> {
        let grant = self.hand_out_there(addr, b, request);
        grant.or_else(|| self.find(request))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::{Config, SegmentMode};
    use crate::device::{Sim, SimConfig};
    use crate::heap::tests::heap_on;

    const MIB: u64 = 1 << 20;

    fn plain() -> Heap {
        let config = Config {
            segments: SegmentMode::Plain,
            ..Config::default()
        };
        heap_on(&Sim::new(SimConfig::default()), config)
    }

    /// So many MiB, by the long way.
    fn take(heap: &mut Heap, mib: u64) -> Grant {
        heap.allocate(mib * MIB, Stream(1), Tag(0)).unwrap()
    }

    /// So many MiB that the lane has until they are given back.
    fn take_often(heap: &mut Heap, mib: u64) -> Grant {
        let mut grant = take(heap, mib);
        while grant.held.lane().is_none() {
            heap.free(grant.block);
            grant = take(heap, mib);
        }
        grant
    }

    fn set_aside(heap: &Heap, grant: &Grant) {
        assert!(heap.front.free(grant.held, true) && is_set_aside(heap));
    }

    fn is_set_aside(heap: &Heap) -> bool {
        let at = heap.streams.named(Stream(1)).next().unwrap();
        heap.has_aside(heap.streams.line(at).lane, 1)
    }

    /// A request that nothing fits: what was given back before may be part of a better fit no longer.
    fn look_at_all(heap: &mut Heap) {
        take(heap, 60);
    }

    /// So many MiB, by the short way: where they are.
    fn ask(heap: &mut Heap, mib: u64) -> u64 {
        let addr = heap.allocate_short(mib * MIB, Stream(1), Tag(0), |grant| grant.addr);
        heap.check();
        addr.unwrap()
    }

    #[test]
    fn what_is_set_aside_serves_a_large_request_that_it_fits_better() {
        let mut heap = plain();
        let (free, often) = (take(&mut heap, 40), take_often(&mut heap, 24));
        heap.free(free.block);
        set_aside(&heap, &often);
        assert_eq!(ask(&mut heap, 22), often.addr);
    }

    #[test]
    fn what_is_set_aside_stays_there_where_it_is_too_small() {
        let mut heap = plain();
        let (free, often) = (take(&mut heap, 40), take_often(&mut heap, 24));
        heap.free(free.block);
        look_at_all(&mut heap);
        set_aside(&heap, &often);
        assert_eq!(ask(&mut heap, 38), free.addr);
        assert!(is_set_aside(&heap));
    }

    #[test]
    fn nothing_fits_better_than_a_block_of_just_the_size() {
        let mut heap = plain();
        let [free, like] = [40, 42].map(|mib| take(&mut heap, mib));
        let often = take_often(&mut heap, 24);
        heap.free(free.block);
        look_at_all(&mut heap);
        heap.free(like.block);
        set_aside(&heap, &often);
        assert_eq!(ask(&mut heap, 40), free.addr);
        assert!(is_set_aside(&heap));
    }
}
