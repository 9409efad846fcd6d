//! Requests that wait for leave to count a block of their lane are served together.

use super::Heap;
use super::lend::half;
use crate::lane::{Lane, Lent, Wish};

impl Heap {
    /// A block that a lane has and did not hand out by itself, for a request that [wished](crate::lane::Wish) for it; and one for all others
    /// that wait for theirs, so that all of them are held at the same time.
    pub(crate) fn lend_wished(&mut self, wish: &Wish, buffer: bool) -> Option<Lent> {
        let mut own = None;
        while let Some(lane) = self.front.next_wishing() {
            // Who has one does not take what another one wished for, who may have asked for the same since.
            let waits = own.is_none().then_some(wish);
            own = own.or(self.serve(lane, waits, buffer));
        }
        let lent = own.or_else(|| self.front.take_wished(wish, buffer));
        self.tell_rest(false);
        if let Some(stream) = self.streams.known(wish.stream) {
            self.lending_cost(stream, half(wish.size));
        }
        lent
    }

    /// Hands out the block that a lane's wish is for. It, if that is `own`.
    #[inline(always)]
    fn serve(&mut self, number: u8, own: Option<&Wish>, buffer: bool) -> Option<Lent> {
        let front = self.front;
        // Most often the heap itself may count what the lane may not, and the lane is locked once.
        let served = front.with(number, |lane| {
            let wish = lane.wish()?;
            let string = self.string_of(wish.tag);
            if !self.make_room_in(lane, &wish) {
                return Some(Err((wish, string)));
            }
            lane.serve(wish, string);
            Some(Ok(own.and_then(|own| lane.take_wished(own, buffer))))
        });
        let taken = match served.flatten()? {
            Ok(taken) => taken,
            Err((wish, string)) => {
                self.make_room(number, half(wish.size), wish.requested, wish.size);
                let serve = |lane: &mut Lane| {
                    lane.serve(lane.wish()?, string);
                    lane.take_wished(own?, buffer)
                };
                front.with(number, serve).flatten()
            }
        };
        taken.flatten()
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
                self.lend_wished(&wish, buffer)?
            }
        };
        self.front.all_of(lent)
    }
}
