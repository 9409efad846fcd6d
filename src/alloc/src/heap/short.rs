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
        // What is remembered goes where it was, if it can.
        let half = half(size);
        let line = self.streams.line_mut(index);
        if self.layouts.remembers(size) || !line.aside.is_empty() && half == 1 {
            return None;
        }
        if let LaneOf::Some(lane) = line.lane
            && self.front.has(lane, size)
        {
            return self.allocate_from_lane(&request);
        }
        let again = line.again[half].asked(size).filter(|_| half == 1);
        if let Some((addr, b)) = again
            && let Some(grant) = self.hand_out_there(addr, b, &request)
        {
            return Some(grant);
        }
        let mut key = self.fit(&request)?;
        if key.size != size && again.is_none() && self.may_fit_better(&request, key.size) {
            key = self.best_of_all(&request)?;
        }
        Some(self.hand_out(key, &request))
    }
}
