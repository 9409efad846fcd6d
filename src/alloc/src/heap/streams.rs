//! The streams a heap has seen: their free blocks, what they wait for, and how far they are known to be done.
//!
//! A stream that has ended leaves its line behind until nothing of it is left (`retire`). The line keeps the name, but is not found by it
//! any more: who says that name means another stream.

mod line;
mod register;

use std::collections::VecDeque;

use gpumem_channel::NO_STREAM;

use super::arena::{COMMON, MAX_POOLS};
use super::ask::event::Event;
use crate::error::Error;
use crate::stream::Stream;
use register::Register;

pub(in crate::heap) use line::{LaneOf, Line};

/// Streams kept apart in one pool, and outside of pools: a tenant with many streams leaves everybody else theirs.
pub(in crate::heap) const MAX_STREAMS: usize = if cfg!(test) { 256 } else { 4096 };
/// The same of all pools together, a stream of two pools twice: lines have numbers of 16 bits.
pub(in crate::heap) const MAX_IN_POOLS: usize = if cfg!(test) { 1024 } else { 60_000 };
// Each arena has one more line, of what is nobody's.
const _: () = assert!(1 + MAX_STREAMS + MAX_POOLS + MAX_IN_POOLS <= u16::MAX as usize);
/// So many of the first streams outside of pools are found at once.
const FEW: usize = 8;

/// No stream's: memory that no queued work uses, which any stream may take at once. Each arena has such a line; this is that of the common
/// one.
pub(crate) const ANY: u16 = 0;
/// The arena of a line that waits for the next stream or arena.
const VACANT: u16 = u16::MAX;

/// All streams of a heap, by index. The first is [`ANY`].
#[derive(Debug)]
pub(crate) struct Streams {
    names: Vec<Stream>,
    lines: Vec<Line>,
    last: usize,
    /// Numbers are handles of CUDA's, of which one is each thread's own stream.
    handles: bool,
    /// There was a second one outside of pools.
    several: bool,
    /// Blocks freed by the program that wait for events.
    pub(crate) pending: usize,
    /// At how many lines of streams that have ended it is looked which can go.
    pub(super) most_retired: usize,
    register: Register,
    /// How often a line was looked at.
    #[cfg(test)]
    pub(super) looks: std::cell::Cell<usize>,
}

/// Lines of streams that have ended which are kept until it is worth a look at all blocks.
pub(in crate::heap) const SPARE: usize = if cfg!(test) { 2 } else { 16 };

impl Streams {
    pub(crate) fn new(handles: bool) -> Streams {
        let mut register = Register::default();
        register.open(COMMON, ANY);
        Streams {
            handles,
            several: false,
            names: vec![Stream(NO_STREAM)],
            lines: vec![Line::new(COMMON, ANY)],
            last: usize::MAX,
            pending: 0,
            most_retired: SPARE,
            register,
            #[cfg(test)]
            looks: Default::default(),
        }
    }

    /// The index of a stream in the common arena, new if need be.
    #[inline]
    pub(crate) fn index(&mut self, stream: Stream) -> Result<u16, Error> {
        match self.known(stream) {
            Some(at) => Ok(at),
            None => self.add(stream, COMMON),
        }
    }

    /// The same, if it is known.
    #[inline(always)]
    pub(crate) fn known(&mut self, stream: Stream) -> Option<u16> {
        if self.names.get(self.last) == Some(&stream) {
            return Some(self.last as u16);
        }
        self.find_known(stream)
    }

    #[inline(never)]
    fn find_known(&mut self, stream: Stream) -> Option<u16> {
        let mut few = self.register.of(COMMON).iter().take(FEW).copied();
        let first = few.find(|at| self.name(*at) == stream && !self.line(*at).is_retired());
        let at = first.or_else(|| self.known_in(COMMON, stream))?;
        self.last = usize::from(at);
        Some(at)
    }

    /// The index of a stream in an arena, if it is known.
    pub(super) fn known_in(&self, arena: u16, stream: Stream) -> Option<u16> {
        self.register.find(arena, stream)
    }

    /// The index of a stream in an arena, new if need be.
    pub(crate) fn index_in(&mut self, arena: u16, stream: Stream) -> Result<u16, Error> {
        match self.known_in(arena, stream) {
            Some(at) => Ok(at),
            None => self.add(stream, arena),
        }
    }

    /// The default stream never ends, by whatever handle it is named, nor does what is refused as a stream; a thread's own does so by itself.
    pub(super) fn may_end(&self, stream: Stream) -> Result<(), Error> {
        match stream {
            Stream::DEFAULT => Err(Error::DefaultStream),
            Stream::LEGACY if self.handles => Err(Error::DefaultStream),
            Stream::PER_THREAD if self.handles => Err(Error::PerThreadStream),
            _ if stream.is_per_thread() => Err(Error::DefaultStream),
            _ => Ok(()),
        }
    }

    fn add(&mut self, stream: Stream, arena: u16) -> Result<u16, Error> {
        // Its handle would be one stream here, and what a thread gave back another thread's work would find in use.
        if self.handles && stream == Stream::PER_THREAD {
            return Err(Error::PerThreadStream);
        }
        let full = |limit, in_all_pools| Err(Error::TooManyStreams { limit, in_all_pools });
        if self.register.of(arena).len() >= MAX_STREAMS {
            return full(MAX_STREAMS, false);
        }
        if arena != COMMON && self.register.in_pools() >= MAX_IN_POOLS {
            return full(MAX_IN_POOLS, true);
        }
        self.several |= arena == COMMON && !self.register.of(COMMON).is_empty();
        let at = self.new_line(stream, arena, self.register.any_of(arena));
        self.register.add(at, arena, stream);
        Ok(at)
    }

    fn new_line(&mut self, stream: Stream, arena: u16, any: u16) -> u16 {
        if let Some(at) = self.register.take_vacant() {
            self.names[usize::from(at)] = stream;
            self.line_mut(at).begin(arena, any);
            return at;
        }
        self.names.push(stream);
        self.lines.push(Line::new(arena, any));
        self.lines.len() as u16 - 1
    }

    /// The lines of a stream, one in each arena that it was used in.
    pub(super) fn named(&self, stream: Stream) -> impl Iterator<Item = u16> {
        self.register.named(stream)
    }

    /// Streams of threads that have ended, which nobody has said.
    pub(super) fn left_by_threads(&self) -> Vec<Stream> {
        let mut left: Vec<Stream> = self.register.per_thread().filter(|stream| stream.has_left()).collect();
        // One of several lines.
        left.dedup();
        left
    }

    /// The stream of a line has ended: nobody finds it by its name any more.
    pub(super) fn retire(&mut self, at: u16, frees: u64) {
        self.line_mut(at).retired = Some(frees);
        self.register.end(at, self.line(at).arena, self.name(at));
        self.last = usize::MAX;
    }

    /// Lines of streams that have ended.
    pub(super) fn all_retired(&self) -> &[u16] {
        self.register.ended()
    }

    /// Forgets a line that nothing belongs to. Nothing that was freed until the free counter was `frees` is used by whoever has it next.
    pub(super) fn vacate(&mut self, at: u16, frees: u64) {
        self.register.vacate(at, self.line(at).arena, self.name(at));
        self.names[usize::from(at)] = Stream(NO_STREAM);
        let line = self.line_mut(at);
        (line.arena, line.retired, line.lane) = (VACANT, None, LaneOf::None);
        line.begin_anew(frees);
        line.again = Default::default();
    }

    /// Makes room for an arena.
    pub(crate) fn open(&mut self, arena: u16) {
        let any = self.new_line(Stream(NO_STREAM), arena, ANY);
        self.line_mut(any).any = any;
        self.register.open(arena, any);
    }

    /// Forgets the lines of an arena that has no blocks any more, as [`vacate`](Streams::vacate) does.
    pub(crate) fn close(&mut self, arena: u16, frees: u64) {
        let mut lines = self.register.of(arena).to_vec();
        lines.push(self.register.any_of(arena));
        for at in lines {
            let line = self.line_mut(at);
            (line.marker, line.later) = (None, None);
            self.vacate(at, frees);
        }
    }

    /// A stream has this lane.
    pub(super) fn set_lane(&mut self, at: u16, lane: LaneOf) {
        self.line_mut(at).lane = lane;
        self.look_whether_draining(at);
    }

    /// A stitched block is set aside on a stream.
    #[inline(always)]
    pub(super) fn set_aside(&mut self, at: u16, size: u64, b: u32) {
        if self.line(at).aside.capacity() == 0 {
            self.make_room_aside(at);
        }
        self.line_mut(at).aside.push((size, b));
    }

    #[cold]
    #[inline(never)]
    fn make_room_aside(&mut self, at: u16) {
        self.line_mut(at).aside.reserve(1);
        self.look_whether_draining(at);
    }

    /// A stream has no stitched block set aside, and needs no room for one soon.
    pub(super) fn end_aside(&mut self, at: u16) {
        self.line_mut(at).aside = Vec::new();
        self.look_whether_draining(at);
    }

    fn look_whether_draining(&mut self, at: u16) {
        let may = self.line(at).may_have_aside();
        self.register.set_draining(at, may);
    }

    /// The lines that may have something set aside, lowest first.
    pub(super) fn draining(&self) -> &[u16] {
        self.register.draining()
    }

    /// The first of them from a line on.
    pub(super) fn next_draining(&self, from: u16) -> Option<u16> {
        self.draining().iter().copied().find(|at| *at >= from)
    }

    /// A block waits for an event on a stream.
    pub(super) fn wait_at(&mut self, at: u16, event: Option<Event>, b: u32) {
        if self.line(at).waiting.is_empty() {
            self.register.await_at(at);
        }
        self.line_mut(at).waiting.push_back((event, b));
    }

    /// Blocks that wait for the next event on a line wait for the device instead.
    pub(super) fn abandon(&mut self, at: u16) {
        let waiting = std::mem::take(&mut self.line_mut(at).waiting);
        let (known, unknown): (VecDeque<_>, VecDeque<_>) = waiting.into_iter().partition(|(event, _)| event.is_some());
        self.line_mut(at).waiting = known;
        for (_, b) in unknown {
            self.wait_at(ANY, None, b);
        }
    }

    /// Whether it would be found that blocks wait at a line.
    #[cfg(test)]
    pub(super) fn has_awaited(&self, at: u16) -> bool {
        self.register.has_awaited(at)
    }

    /// The lines at which blocks wait, lowest first.
    pub(super) fn awaited(&mut self) -> Vec<u16> {
        let lines = &self.lines;
        let waits = |at: u16| !lines[usize::from(at)].waiting.is_empty();
        self.register.awaited(waits).to_vec()
    }

    #[inline]
    pub(crate) fn name(&self, index: u16) -> Stream {
        self.names[index as usize]
    }

    #[inline]
    pub(crate) fn line(&self, index: u16) -> &Line {
        #[cfg(test)]
        self.looks.update(|looks| looks + 1);
        &self.lines[index as usize]
    }

    #[inline]
    pub(crate) fn line_mut(&mut self, index: u16) -> &mut Line {
        &mut self.lines[index as usize]
    }

    /// Whether an index is that of memory that is nobody's.
    #[inline(always)]
    pub(crate) fn is_any(&self, index: u16) -> bool {
        self.line(index).any == index
    }

    /// Every line.
    pub(crate) fn indices(&self) -> impl ExactSizeIterator<Item = u16> + use<> {
        0..self.lines.len() as u16
    }

    /// Every real stream of every arena.
    pub(crate) fn real(&self) -> impl Iterator<Item = u16> {
        self.indices().filter(|at| self.is_real(*at))
    }

    /// Whether a line is a stream's.
    pub(super) fn is_real(&self, at: u16) -> bool {
        self.line(at).arena != VACANT && !self.is_any(at)
    }

    /// Whether there ever were two outside of pools at the same time.
    #[inline(always)]
    pub(super) fn were_several(&self) -> bool {
        self.several
    }

    /// Whether this is the only stream of the common arena.
    pub(super) fn is_only(&self, at: u16) -> bool {
        self.register.of(COMMON) == [at]
    }

    /// Every line of an arena.
    pub(super) fn all_of(&self, arena: u16) -> impl Iterator<Item = u16> {
        std::iter::once(self.register.any_of(arena)).chain(self.of(arena))
    }

    /// Every real stream of an arena.
    pub(crate) fn of(&self, arena: u16) -> impl Iterator<Item = u16> {
        self.register.of(arena).iter().copied()
    }
}
