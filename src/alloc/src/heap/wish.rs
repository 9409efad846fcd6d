//! Requests that wait for leave to count a block of their lane are served together.

use super::Heap;
use super::lend::half;
use crate::lane::{Lent, Wish};

impl Heap {
    /// A block that a lane has and did not hand out by itself, for a request that [wished](crate::lane::Wish) for it; and one for all others
    /// that wait for theirs, so that all of them are held at the same time.
    pub(crate) fn lend_wished(&mut self, wish: &Wish, buffer: bool) -> Option<Lent> {
        while let Some(lane) = self.front.next_wishing() {
            let Some(wish) = self.front.with(lane, |lane| lane.wish()).flatten() else {
                continue;
            };
            let string = self.string_of(wish.tag);
            self.make_room(lane, half(wish.size), wish.requested, wish.size);
            self.front.with(lane, |lane| lane.serve(string));
        }
        let lent = self.front.take_wished(wish, buffer);
        self.tell_rest(false);
        if let Some(stream) = self.streams.known(wish.stream) {
            self.lending_cost(stream, half(wish.size));
        }
        lent
    }
}

#[cfg(test)]
impl Heap {
    /// A block of a lane, which hands it out by itself or is [wished](Heap::lend_wished) for.
    pub(crate) fn lend_quick(
        &mut self,
        requested: u64,
        stream: crate::Stream,
        tag: crate::tag::Tag,
        buffer: bool,
    ) -> Option<super::Grant> {
        let asked = self.front.size_of(requested);
        let lent = match self.front.allocate((requested, asked), stream, tag, buffer) {
            Ok(lent) => lent,
            Err(0) => return None,
            Err(size) => {
                let wish = Wish {
                    requested,
                    size,
                    stream,
                    tag,
                };
                self.lend_wished(&wish, buffer)?.by_class(size != asked)
            }
        };
        self.front.all_of(lent, asked)
    }
}
