//! Streams that end.
//!
//! A program says so while the stream is still there. One event behind all its work tells when that is done, and what the stream owned is
//! then anybody's: free blocks at once, the others when they are given back. Nothing is recorded on the stream any more, so that it may
//! be destroyed, and its handle may come back as that of another stream. Its line stays until no block belongs to it. Looking for
//! those takes a look at all blocks, which is done once enough such lines have come together.

use gpumem_channel::BlockState;

use super::Heap;
use super::allocate::Request;
use super::arena::COMMON;
use super::streams::{LaneOf, SPARE};
use crate::error::Error;
use crate::stream::Stream;

impl Heap {
    /// The program is about to destroy a stream.
    pub(crate) fn retire_stream(&mut self, stream: Stream) -> Result<(), Error> {
        if stream == Stream::DEFAULT {
            return Err(Error::DefaultStream);
        }
        self.not_capturing()?;
        for at in self.streams.named(stream).collect::<Vec<_>>() {
            self.swallows = false;
            self.take_from_lane(at);
            // Blocks that were freed before now carry less.
            self.frees += 1;
            // If it takes no event, its blocks wait until the device is synchronised.
            let event = self.driver.record(stream).ok();
            let before = std::mem::replace(
                &mut self.streams.line_mut(at).marker,
                event.map(|event| (event, u64::MAX)),
            );
            if let Some((before, _)) = before {
                self.driver.retire(before);
            }
            self.streams.retire(at, self.frees);
            self.poll_retired(at);
            self.disown(at);
        }
        if self.streams.retired > self.streams.most_retired {
            self.forget_retired();
        }
        Ok(())
    }

    /// Gets back what a stream has set aside and what is lent to its lane, which the next stream may have then.
    fn take_from_lane(&mut self, at: u16) {
        let lane = match self.streams.line(at).lane {
            LaneOf::Some(lane) => Some(lane),
            _ => None,
        };
        if let Some(lane) = lane {
            self.front.with(lane, |lane| lane.set_open(false));
        }
        self.drain(at, 0);
        self.drain(at, 1);
        if let Some(lane) = lane {
            for b in self.front.with(lane, |lane| lane.held()).unwrap_or_default() {
                self.recall(b);
            }
            self.front.leave(lane);
            self.streams.line_mut(at).lane = LaneOf::Left(lane);
            for other in self.streams.of(COMMON).collect::<Vec<_>>() {
                self.streams.line_mut(other).ask_again();
            }
        }
    }

    /// Where streams come and go a new one finds only what is nobody's. So what others take in beside their own they take only when they
    /// need it, and of new memory only what they asked for.
    pub(super) fn leave_rest(&mut self, request: &Request) {
        if !self.swallows {
            self.disown(request.stream);
        }
    }

    /// Looks whether the work of a stream that has ended is done: then nothing waits for it any more.
    pub(super) fn poll_retired(&mut self, at: u16) {
        self.check_marker(at);
        while self.streams.line(at).safe == u64::MAX
            && let Some((event, b)) = self.streams.line_mut(at).waiting.pop_front()
        {
            if let Some(event) = event {
                self.driver.retire(event);
            }
            self.waited(b);
        }
    }

    /// The line of a stream in an arena, new if need be.
    #[inline]
    pub(super) fn line_of(&mut self, arena: u16, stream: Stream) -> Result<u16, Error> {
        let known = match arena {
            COMMON => self.streams.index(stream),
            pool => self.streams.index_in(pool, stream),
        };
        known.or_else(|_| self.line_once_there_is_room(arena, stream))
    }

    /// The same when there was no room for another.
    #[cold]
    #[inline(never)]
    fn line_once_there_is_room(&mut self, arena: u16, stream: Stream) -> Result<u16, Error> {
        self.forget_retired();
        self.streams.index_in(arena, stream)
    }

    /// Forgets the streams that have ended and that nothing belongs to any more.
    fn forget_retired(&mut self) {
        // Requests that are suspended remember lines, and nothing is queried while a graph is captured.
        if self.suspended > 0 || self.capturing() {
            return;
        }
        let retired: Vec<u16> = self.streams.all_retired().collect();
        for at in &retired {
            self.poll_retired(*at);
            self.disown(*at);
        }
        let named = self.named_lines();
        for at in retired {
            let line = self.streams.line(at);
            if line.safe == u64::MAX && line.is_bare() && !named[usize::from(at)] {
                self.forget_line(at);
            }
        }
        self.streams.most_retired = self.streams.retired + self.streams.retired / 4 + SPARE;
    }

    /// Of which lines there is a block, or one that is to wait for them.
    fn named_lines(&self) -> Vec<bool> {
        let mut named = vec![false; self.streams.indices().len()];
        for at in self.users.values().flatten() {
            named[usize::from(*at)] = true;
        }
        for block in self.blocks.iter().filter(|block| block.state != BlockState::Unmapped) {
            named[usize::from(block.stream)] = true;
        }
        named
    }

    fn forget_line(&mut self, at: u16) {
        let any = self.streams.line(at).any;
        for segment in self.segments.iter_mut().filter(|segment| segment.stream == at) {
            segment.stream = any;
        }
        self.layouts.forget(at);
        self.streams.vacate(at, self.frees);
    }

    /// Whether the stream of a block has ended, and if so whether its work is known to be done.
    pub(crate) fn has_ended(&mut self, b: u32) -> Option<bool> {
        let at = self.blocks[b].stream;
        if !self.streams.line(at).is_retired() {
            return None;
        }
        if !self.capturing() {
            self.poll_retired(at);
        }
        Some(self.streams.line(at).safe == u64::MAX)
    }
}
