//! The short way: a request that the best of its stream's own free blocks serves. Everything that needs more than that takes the long
//! way, from the start: nothing was changed then.

use super::allocate::Request;
use super::arena::COMMON;
use super::lend::half;
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
        // What is remembered goes where it was, if it can; what comes again is lent.
        let half = half(size);
        let line = self.streams.line(index);
        if self.layouts.remembers(size) || line.again[half].expects(size) || half == 1 && !line.aside.is_empty() {
            return None;
        }
        let (own, any) = (
            &line.free[class as usize],
            &self.streams.line(line.any).free[class as usize],
        );
        let key = match self.sizes.goes_low(class, size) {
            true => own.low_fit(size)?,
            false => own.best_fit(size)?,
        };
        // A better one may be nobody's, or in pieces that are set aside.
        let exact = key.size == size;
        if !exact && (self.has_aside(line.lane, half) || !any.is_empty()) || !self.sizes.takes(size, key.size) {
            return None;
        }
        if !exact {
            self.streams.line_mut(index).again[half].next_round();
        }
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
        let taken = self.take_out(key, &request);
        Some(self.hand_out_taken(taken, &request))
    }
}
