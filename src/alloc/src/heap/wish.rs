//! Requests that wait for leave to count a block of their lane are served together.

use super::Heap;
use crate::lane::{Lane, Lent, Wish};
use crate::size::half;

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
            match self.known_string(wish.tag) {
                Some(string) if self.make_room_in(lane, &wish) => {
                    lane.serve(wish, string);
                    Some(Ok(own.and_then(|own| lane.take_wished(own, buffer))))
                }
                _ => Some(Err(wish)),
            }
        });
        let taken = match served.flatten()? {
            Ok(taken) => taken,
            Err(wish) => {
                // Other lanes' locks, or that of names.
                let string = self.string_of(wish.tag);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::{Duration, Instant};

    use super::*;
    use crate::config::Config;
    use crate::device::{Sim, SimConfig};
    use crate::heap::tests::heap_on;
    use crate::stream::Stream;
    use crate::tag::{self, Tag};

    /// Who looks up a name waits for all threads that begin a scope, and the lane's for nobody.
    #[test]
    fn a_lane_is_open_while_a_name_is_looked_up() {
        let mut heap = heap_on(&Sim::new(SimConfig::default()), Config::default());
        let (front, stream, size) = (heap.front, Stream(1), 4096);
        for _ in 0..4 {
            let grant = heap.allocate(size, stream, Tag(0)).unwrap();
            heap.free(grant.block);
        }
        let _scope = tag::scope("not yet known to a heap");
        let tag = tag::current();
        // The lane does not know the name, either.
        assert_eq!(front.allocate((size, size), stream, tag, false).err(), Some(size));
        let wish = Wish {
            requested: size,
            size,
            stream,
            tag,
        };
        let lent = std::thread::scope(|scope| {
            let (served, is_open) = tag::while_locked(|| {
                let served = scope.spawn(|| heap.lend_wished(&wish, false));
                std::thread::sleep(Duration::from_millis(50));
                let looks = scope.spawn(|| front.with(0, |_| ()));
                let began = Instant::now();
                while !looks.is_finished() && began.elapsed() < Duration::from_secs(10) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert!(!served.is_finished(), "it knew the name");
                (served, looks.is_finished())
            });
            assert!(is_open, "a lane waits for a name");
            served.join().unwrap()
        });
        assert!(lent.is_some());
    }
}
