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
        let half = half(size);
        let remembers = self.layouts.remembers(size);
        let line = self.streams.line_mut(index);
        // What is remembered goes where it was, if it can.
        if !line.aside.is_empty() && half == 1 || remembers && self.layouts.may_repeat(index) {
            return None;
        }
        let grant = self.allocate_at_once(&request, remembers)?;
        if remembers {
            self.note_as_new(&grant, &request);
        }
        Some(grant)
    }

    /// `thorough`: a block of just its size is no better than another one that was given back a moment ago.
    #[inline(always)]
    fn allocate_at_once(&mut self, request: &Request, thorough: bool) -> Option<Grant> {
        let (size, half) = (request.size, half(request.size));
        let line = self.streams.line_mut(request.stream);
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
        if (thorough || key.size != size) && again.is_none() && self.may_fit_better(request, key.size) {
            key = self.best_of_all(request)?;
        }
        Some(self.hand_out(key, request))
    }
}
