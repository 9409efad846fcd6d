//! Streams that end.
//!
//! A program says so while the stream is still there. One event behind all its work tells when that is done, and what the stream owned is
//! then anybody's: free blocks at once, the others when they are given back. Nothing is recorded on the stream any more, and who was just
//! asking something of it is waited for, so that it may be destroyed, and its handle may come back as that of another stream. Its line stays until no block belongs to it. Looking for
//! those takes a look at all blocks, which is done once enough such lines have come together.
//!
//! A stream that was destroyed before takes no event. What it owned, and its line, then wait until the device was waited for, which is done for
//! a new stream that there is no room for. So does what the stream of a thread owned that has ended, of which the program said nothing: others
//! may still use it. Where streams end untold, those of which nothing is held are taken for ended when there is no room for a new one.

use std::sync::Arc;

use gpumem_channel::BlockState;

use super::Heap;
use super::allocate::Request;
use super::arena::COMMON;
use super::ask::asking::{Asked, Asking};
use super::ask::event::Event;
use super::ask::probe_ended;
use super::streams::{LaneOf, SPARE};
use super::turn::access::{Access, settle};
use crate::device::Driver;
use crate::error::Error;
use crate::process::Uncancelled;
use crate::stream::Stream;

/// Blocks that may be looked at for one stream that ends.
const LOOKS: usize = 4096;

/// Streams that were just named for the first time.
#[derive(Debug)]
pub(crate) struct Unmet {
    driver: Arc<dyn Driver>,
    streams: Vec<Stream>,
}

impl Unmet {
    /// To be done without the heap's lock, and before the program goes on: what it queues there is waited for only once the driver knows
    /// whose stream it is. What the heap is to [note](Heap::note_id).
    pub(crate) fn meet(&self) -> Vec<(Stream, Option<u64>)> {
        let _undisturbed = Uncancelled::begin();
        let meet = |stream: &Stream| {
            self.driver.meet(*stream);
            let ends = !stream.never_ends();
            (*stream, ends.then(|| self.driver.stream_id(*stream)).flatten())
        };
        self.streams.iter().map(meet).collect()
    }
}

/// A stream that is just ending.
#[derive(Debug)]
struct Ending {
    stream: Stream,
    lines: Vec<u16>,
    /// One for each line, to be recorded.
    events: Vec<Event>,
    asked: Arc<Asked>,
    asking: Asking,
}

/// The program is about to destroy a stream.
pub(crate) fn retire_stream(on: &mut impl Access, stream: Stream) -> Result<(), Error> {
    on.heap(|heap| heap.streams.may_end(stream))??;
    end_stream(on, stream, true)
}

/// The same for the streams of threads that have ended, as soon as the GPU is idle or there are so many: an event of another thread's stream
/// [holds others up](Stream::is_of_another_thread).
pub(crate) fn retire_left_by_threads(on: &mut impl Access, many: usize) -> Result<(), Error> {
    let (left, driver, asking) = on.heap(|heap| {
        // No capture begins before the answer.
        let asking = heap.not_capturing().map(|()| heap.asked.begin(None))?;
        Ok::<_, Error>((heap.streams.left_by_threads(), Arc::clone(&heap.driver), asking))
    })??;
    let Some(one) = left.first() else { return Ok(()) };
    if left.len() < many && !matches!(driver.is_idle(*one), Ok(true)) {
        return Ok(());
    }
    drop(asking);
    left.into_iter().try_for_each(|stream| end_stream(on, stream, false))
}

/// `given_up`: the program says so.
fn end_stream(on: &mut impl Access, stream: Stream, given_up: bool) -> Result<(), Error> {
    let lines = on.heap(|heap| heap.end_stream(stream, given_up))??.finish();
    probe_ended(on, |_| lines.clone())?;
    let many = on.heap(|heap| {
        for at in lines {
            heap.disown(at);
        }
        heap.streams.all_retired().len() > heap.streams.most_retired
    })?;
    if many {
        forget_streams(on)?;
    }
    Ok(())
}

/// Forgets the streams that have ended and that nothing belongs to any more.
pub(crate) fn forget_streams(on: &mut impl Access) -> Result<(), Error> {
    probe_ended(on, |heap| heap.forgettable())?;
    on.heap(Heap::forget_retired)
}

/// The same once the work of those that have ended is done, also where no event tells that it is. To be called by who has the turn, so that no
/// capture begins meanwhile: who had it before may have waited already.
pub(crate) fn forget_awaited_streams(on: &mut impl Access) -> Result<(), Error> {
    if on.heap(|heap| heap.may_forget_more() && heap.lacks_news_of_ended())? {
        settle(on)?;
    }
    forget_streams(on)
}

/// Whether the stream of a block has ended, and if so whether its work is known to be done.
pub(crate) fn has_ended(on: &mut impl Access, b: u32) -> Result<Option<bool>, Error> {
    let Some(line) = on.heap(|heap| heap.ended_line_of(b))? else {
        return Ok(None);
    };
    probe_ended(on, |_| vec![line])?;
    on.heap(|heap| Some(heap.streams.line(line).is_done()))
}

impl Ending {
    /// To be done without the heap's lock. Nobody begins to use the stream any more; who does already is waited for.
    fn finish(self) -> Vec<u16> {
        self.asked.wait_for(self.stream);
        // Where it takes none blocks wait until the device is synchronised.
        for event in &self.events {
            event.record();
        }
        drop(self.asking);
        self.lines
    }
}

impl Heap {
    /// Nobody finds the lines of a stream any more: what they own waits for an event that is yet to be recorded.
    fn end_stream(&mut self, stream: Stream, given_up: bool) -> Result<Ending, Error> {
        let lines: Vec<u16> = self.streams.named(stream).collect();
        // Who does not know it is not concerned.
        if !lines.is_empty() {
            self.not_capturing()?;
        }
        let events = lines.iter().map(|at| self.end_line(*at, given_up)).collect();
        Ok(Ending {
            stream,
            lines,
            events,
            asked: Arc::clone(&self.asked),
            asking: self.asked.begin(None),
        })
    }

    fn end_line(&mut self, at: u16, given_up: bool) -> Event {
        self.swallows = false;
        self.take_from_lane(at);
        // Blocks that were freed before now carry less.
        self.frees += 1;
        let event = Event::new(&self.driver, self.streams.name(at));
        let line = self.streams.line_mut(at);
        (line.marker, line.later, line.given_up) = (Some((event.clone(), u64::MAX)), None, given_up);
        self.streams.retire(at, self.frees);
        event
    }

    /// Gets back what a stream has set aside and what is lent to its lane, which the next stream may have then.
    fn take_from_lane(&mut self, at: u16) {
        let lane = self.streams.line(at).lane;
        if let LaneOf::Some(lane) = lane {
            self.front.with(lane, |lane| lane.open = false);
        }
        self.drain(at, 0);
        self.drain(at, 1);
        if let LaneOf::Some(lane) = lane {
            self.recall_all(lane);
            self.front.leave(lane);
            let line = self.streams.line_mut(at);
            line.classes = Default::default();
            self.streams.set_lane(at, LaneOf::Left(lane));
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

    /// The line of a stream in an arena, new if need be. There may be room for it once those that have ended are
    /// [forgotten](forget_streams).
    #[inline]
    pub(super) fn line_of(&mut self, arena: u16, stream: Stream) -> Result<u16, Error> {
        let known = match arena {
            COMMON => self.streams.known(stream),
            pool => self.streams.known_in(pool, stream),
        };
        match known {
            Some(line) => Ok(line),
            None => self.new_line(arena, stream),
        }
    }

    #[cold]
    #[inline(never)]
    fn new_line(&mut self, arena: u16, stream: Stream) -> Result<u16, Error> {
        let line = self.streams.index_in(arena, stream)?;
        if stream != Stream::DEFAULT {
            self.unmet.push(stream);
        }
        Ok(line)
    }

    /// The streams that got their first line in an arena since this was last asked.
    #[inline]
    pub(crate) fn take_unmet(&mut self) -> Option<Unmet> {
        match self.unmet.is_empty() {
            true => None,
            false => Some(self.take_them_unmet()),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_them_unmet(&mut self) -> Unmet {
        Unmet {
            driver: Arc::clone(&self.driver),
            streams: std::mem::take(&mut self.unmet),
        }
    }

    /// The lines that may be forgotten: none that a request knows which is suspended.
    fn forgettable(&self) -> Vec<u16> {
        if self.capturing() {
            return Vec::new();
        }
        let retired = self.streams.all_retired().iter().copied();
        retired.filter(|line| !self.suspended.contains(line)).collect()
    }

    /// Where streams end untold: takes those for ended of which nothing is held. One that lives has a new line when it is named again. Whether
    /// there was one.
    pub(crate) fn retire_unused(&mut self) -> bool {
        if !self.streams_may_end_untold || self.capturing() {
            return false;
        }
        let mut held = vec![false; self.streams.indices().len()];
        let idle = [BlockState::Free, BlockState::Unmapped, BlockState::Quick];
        let blocks = self.blocks.iter().filter(|block| !idle.contains(&block.state));
        let users = self.users.values().flatten().map(|user| user.line);
        let suspended = self.suspended.iter().copied();
        for at in blocks.map(|block| block.stream).chain(users).chain(suspended) {
            held[usize::from(at)] = true;
        }
        let ends = |at: &u16| {
            let line = self.streams.line(*at);
            !held[usize::from(*at)]
                && !line.is_retired()
                && line.waiting.is_empty()
                && !self.streams.name(*at).never_ends()
        };
        let unused: Vec<u16> = self.streams.real().filter(ends).collect();
        for at in &unused {
            // It may be gone, and takes no event: the device is waited for.
            self.end_line(*at, false);
        }
        !unused.is_empty()
    }

    /// Whether there may be more room for streams once the device was waited for.
    pub(crate) fn may_forget_more(&self) -> bool {
        !self.capturing() && !self.streams.all_retired().is_empty()
    }

    /// Whether a stream has ended of which it is not known that its work is done.
    fn lacks_news_of_ended(&self) -> bool {
        let mut ended = self.streams.all_retired().iter();
        // What is free of those that the program did not give up is anybody's only once the device was waited for.
        let shares = |at: u16| self.shares_across_streams || self.streams.line(at).given_up;
        let keeps_some = |at: u16| !shares(at) && self.owns_free(at);
        ended.any(|at| !self.streams.line(*at).is_done() || keeps_some(*at))
    }

    fn forget_retired(&mut self) {
        if self.capturing() {
            return;
        }
        let retired = self.forgettable();
        for at in &retired {
            self.end_waiting(*at);
            self.disown(*at);
        }
        self.forget_done_users();
        let named = self.named_lines();
        for at in retired {
            let line = self.streams.line(at);
            if line.is_done() && line.is_bare() && !named[usize::from(at)] {
                self.forget_line(at);
            }
        }
        let left = self.streams.all_retired().len();
        // However many blocks there are, so many were looked at for each stream that ends, as long as most of those can go.
        self.streams.most_retired = left + left / 4 + SPARE + self.blocks.iter().len() / LOOKS;
    }

    /// Blocks do not wait for streams that have ended and whose work is done.
    fn forget_done_users(&mut self) {
        let (streams, blocks) = (&self.streams, &mut self.blocks);
        self.users.retain(|b, users| {
            users.retain(|user| {
                let line = streams.line(user.line);
                // What had the handle before is not known to be done.
                !line.is_retired() || !line.is_done() || !user.is_of(line)
            });
            blocks[*b].used = !users.is_empty();
            !users.is_empty()
        });
    }

    /// Of which lines there is a block, or one that is to wait for them.
    fn named_lines(&self) -> Vec<bool> {
        let mut named = vec![false; self.streams.indices().len()];
        for user in self.users.values().flatten() {
            named[usize::from(user.line)] = true;
        }
        for block in self.blocks.iter().filter(|block| block.state != BlockState::Unmapped) {
            named[usize::from(block.stream)] = true;
        }
        named
    }

    fn forget_line(&mut self, at: u16) {
        let any = self.streams.line(at).any;
        for segment in self.segments.values_mut().filter(|segment| segment.stream == at) {
            segment.stream = any;
        }
        self.layouts.forget(at);
        self.streams.vacate(at, self.frees);
    }

    /// The line of a block's stream, if that has ended.
    fn ended_line_of(&self, b: u32) -> Option<u16> {
        let line = self.blocks[b].stream;
        self.streams.line(line).is_retired().then_some(line)
    }
}
