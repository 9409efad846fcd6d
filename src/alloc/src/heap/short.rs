//! The short way: a request that the best of the free blocks serves that its stream may have at once. Everything that needs more than
//! that takes the long way, from the start.

use super::allocate::Request;
use super::arena::COMMON;
use super::lend::half;
use super::streams::LaneOf;
use super::{Grant, Heap};
use crate::size::pool_of;
use crate::stream::Stream;
use crate::tag::Tag;

impl Heap {
    /// A block for a request that no lane had one for. `None`: the long way may find one.
    #[inline]
    pub(crate) fn allocate_short(&mut self, requested: u64, stream: Stream, tag: Tag) -> Option<Grant> {
        let (size, class) = self.sizes.round_quick(requested)?;
        let index = self.streams.known(stream)?;
        let string = self.known_string(tag)?;
        let request = Request {
            requested,
            size,
            class,
            pool: pool_of(size),
            stream: index,
            arena: COMMON,
            tag: string,
            name: tag,
        };
        if self.layouts.remembers(size) {
            return self.allocate_remembered_short(&request);
        }
        self.allocate_at_once(&request, false)
    }

    /// The same for a request that is remembered: it goes where it was, if it can.
    #[inline(never)]
    fn allocate_remembered_short(&mut self, request: &Request) -> Option<Grant> {
        let repeats = self.layouts.may_repeat(request.stream);
        if repeats && let Some(grant) = self.allocate_as_before(request) {
            return Some(grant);
        }
        let grant = self.allocate_at_once(request, true);
        match &grant {
            Some(grant) if repeats => self.note_placement(grant, request),
            Some(grant) => self.note_as_new(grant, request),
            None if repeats => self.layouts.was_asked(request.stream),
            None => {}
        }
        grant
    }

    /// `thorough`: a block of just its size is no better than another one that was given back a moment ago.
    #[inline(always)]
    fn allocate_at_once(&mut self, request: &Request, thorough: bool) -> Option<Grant> {
        let (size, half) = (request.size, half(request.size));
        let line = self.streams.line_mut(request.stream);
        if !line.aside.is_empty() & (half == 1) {
            return None;
        }
        if let LaneOf::Some(lane) = line.lane
            && self.front.has(lane, size)
        {
            return self.allocate_from_lane(request);
        }
        let again = line.again[half].asked(size).filter(|_| half == 1);
        if let Some((addr, b)) = again
            && let Some(grant) = self.hand_out_there(addr, b, request)
        {
            return Some(grant);
        }
        let mut key = self.fit(request)?;
        let well = !thorough && key.size == size;
        if half == 1 && !well && again.is_none() && self.may_fit_better(request, key.size) {
            key = self.best_of_all(request)?;
        }
        Some(self.hand_out(key, request))
    }
}
