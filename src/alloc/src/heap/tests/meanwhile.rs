//! What others do while the driver is called: whoever asks for memory, or gives it back to the driver, has let go of the heap.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::heap::tests::model::World;
use crate::heap::tests::naive;
use crate::heap::*;
use crate::stream::Stream;
use crate::tag::Tag;

/// A way to the heap of a world in which others are at work in between, for who needs the stream in some place.
pub(in crate::heap) struct Among<'a>(pub(in crate::heap) &'a mut World, pub(in crate::heap) u64);

impl Access for Among<'_> {
    fn heap<R>(&mut self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        let result = work(&mut self.0.heap);
        self.0.heap.check();
        let alone = std::mem::replace(&mut self.0.alone, true);
        // They take what is there, give something back, and both at once.
        for bytes in [3 << 20, 700] {
            self.0.take_quickly(bytes);
            self.0.meanwhile(self.1);
        }
        self.0.alone = alone;
        Ok(result)
    }
}

impl World {
    /// Gives a block back. Others are at work while the driver is called for that.
    pub(in crate::heap) fn take_back(&mut self, b: u32) {
        if self.alone || !self.has_company() {
            return self.heap.free(b);
        }
        self.heap.take_back(b);
        self.heap.check();
        if let Some(errands) = self.heap.take_errands() {
            run_errands(&mut Among(self, 0), errands).unwrap();
        }
    }

    /// Looks what is done.
    pub(in crate::heap) fn poll(&mut self) {
        match self.has_company() {
            true => poll(&mut Among(self, 0)).unwrap(),
            false => self.heap.poll_pending(),
        }
    }

    /// A stream ends, and another one comes in its place.
    pub(in crate::heap) fn retire(&mut self, place: u64, again: bool) {
        let stream = self.lives.stream(place);
        let retired = match self.has_company() {
            true => retire_stream(&mut Among(self, place), stream),
            false => self.heap.retire_stream(stream),
        };
        self.lives.end(retired, &self.sim, &self.pools, (place, again));
    }

    /// Takes a block if there is one for which the driver need not be called.
    fn take_quickly(&mut self, bytes: u64) {
        let caller = naive::caller(bytes);
        self.heap.attribute(caller.1);
        let grant = self
            .heap
            .allocate_short(bytes, self.lives.stream(0), caller.0, |grant| grant);
        while let Some(wonder) = self.heap.take_wonder() {
            let heard = wonder.ask(&self.heap.driver);
            assert!(self.heap.heard(heard, |_| None::<Grant>).is_none());
        }
        self.heap.attribute(crate::stack::Stack::NONE);
        if let Some(grant) = grant {
            // A failure that was injected may come while the block is filled.
            let filled = self.hold(COMMON, grant, bytes, (0, caller));
            assert!(filled.is_ok() || self.faulty);
        }
    }

    /// On the short way, where the heap is let go of while something is asked.
    fn allocate_short(&mut self, bytes: u64, stream: Stream, tag: Tag, place: u64) -> Option<Grant> {
        let mut grant = self.heap.allocate_short(bytes, stream, tag, |grant| grant);
        let mut wonder = self.heap.take_wonder();
        for questions in 0.. {
            let Some(next) = wonder else { break };
            assert!(questions < 100, "it goes on for ever");
            if bytes.is_multiple_of(7) {
                self.meanwhile(place);
            }
            let heard = next.ask(&self.heap.driver);
            if bytes.is_multiple_of(3) {
                self.meanwhile(place);
            }
            grant = self
                .heap
                .heard(heard, |heap| heap.allocate_short(bytes, stream, tag, |grant| grant));
            wonder = self.heap.take_wonder();
        }
        grant
    }

    /// The heap is let go of while the driver is called: others give blocks back and retire streams before and after the call, or had the
    /// turn first.
    pub(in crate::heap) fn allocate(&mut self, arena: u16, bytes: u64, place: u64, tag: Tag) -> Result<Grant, Error> {
        let stream = self.lives.stream(place);
        if bytes.is_multiple_of(5) {
            return self.heap.allocate_in(arena, bytes, stream, tag);
        }
        let short = match arena {
            COMMON => self.allocate_short(bytes, stream, tag, place),
            pool => self.heap.allocate_short_in(pool, bytes, stream, tag),
        };
        if let Some(grant) = short {
            return Ok(grant);
        }
        let mut attempt = self.heap.attempt(arena, bytes, stream, tag);
        for calls in 0.. {
            let mut suspended = match attempt {
                Attempt::Done(result) => return result,
                Attempt::Suspended(suspended) => *suspended,
            };
            assert!(calls < 100, "it goes on for ever");
            if calls == 0 && bytes.is_multiple_of(7) {
                self.meanwhile(place);
                attempt = self.heap.resume_anew(suspended);
                continue;
            }
            if suspended.needs_turn() {
                self.heap.begin_call(&mut suspended);
            }
            self.heap.check();
            if bytes.is_multiple_of(2) {
                self.meanwhile(place);
            }
            let made = suspended.run(&mut Among(self, place))?;
            if bytes.is_multiple_of(3) {
                self.meanwhile(place);
            }
            attempt = self.heap.resume(made);
        }
        unreachable!("a request is served or refused")
    }

    /// What others do for whom a stream is not there of which memory is asked for.
    fn meanwhile(&mut self, but: u64) {
        // Nobody else beside them, for whom that stream would be there.
        let alone = std::mem::replace(&mut self.alone, true);
        self.give_back_and_retire(but);
        self.alone = alone;
    }

    fn give_back_and_retire(&mut self, but: u64) {
        if let Some(held) = self.held.pop() {
            self.give_back(held.grant);
            let place = held.stream.place as u64;
            // Who retires a stream that somebody asks about waits for that: nobody here would go on.
            let stream = self.lives.stream(place);
            let asked = self.heap.asked.names(stream);
            if !self.steady && place != but && !asked && held.stamp.is_multiple_of(3) {
                let again = held.stamp.is_multiple_of(2);
                let retired = self.heap.retire_stream(self.lives.stream(place));
                self.lives.end(retired, &self.sim, &self.pools, (place, again));
            }
            match held.stamp % 7 {
                0 => self.heap.poll_pending(),
                1 if !self.pools.capturing() => assert!(self.heap.wait_for_device().is_ok() || self.faulty),
                _ => {}
            }
        }
        self.heap.check();
    }
}
