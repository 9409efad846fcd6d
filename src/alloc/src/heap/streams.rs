//! The streams a heap has seen: their free blocks, what they wait for, and how far they are known to be done.

use std::collections::VecDeque;

use gpumem_channel::NO_STREAM;

use super::quick::Quick;
use crate::device::EventHandle;
use crate::error::Error;
use crate::free::FreeIndex;
use crate::size::{CLASSES, SMALL_MAX};
use crate::stream::Stream;

/// Streams kept apart by one heap.
const MAX_STREAMS: usize = 4096;

/// One stream.
#[derive(Debug)]
pub(crate) struct Line {
    /// Its free blocks by class, but for those set aside.
    pub(crate) free: [FreeIndex; CLASSES],
    /// Those set aside: small ones, and large ones.
    pub(crate) quick: [Quick; 2],
    /// Blocks that wait for an event on this stream, oldest first.
    pub(crate) waiting: VecDeque<(Option<EventHandle>, u32)>,
    /// Blocks freed up to this count of the heap's free counter are no longer used by work of this stream.
    pub(crate) safe: u64,
    /// An event and the count that becomes safe when it is done.
    pub(crate) marker: Option<(EventHandle, u64)>,
}

/// No stream's: memory that no queued work uses, which any stream may take at once.
pub(crate) const ANY: u16 = 0;

/// All streams of a heap, by index. The first is [`ANY`].
#[derive(Debug)]
pub(crate) struct Streams {
    names: Vec<Stream>,
    lines: Vec<Line>,
    last: usize,
    /// Blocks freed by the program that wait for events.
    pub(crate) pending: usize,
}

impl Line {
    fn new() -> Line {
        Line {
            free: std::array::from_fn(|_| FreeIndex::new()),
            quick: [Quick::new(), Quick::new()],
            waiting: VecDeque::new(),
            safe: 0,
            marker: None,
        }
    }
}

impl Streams {
    pub(crate) fn new() -> Streams {
        Streams {
            names: vec![Stream(NO_STREAM)],
            lines: vec![Line::new()],
            last: usize::MAX,
            pending: 0,
        }
    }

    /// The index of a stream, new if need be.
    #[inline]
    pub(crate) fn index(&mut self, stream: Stream) -> Result<u16, Error> {
        if self.names.get(self.last) == Some(&stream) {
            return Ok(self.last as u16);
        }
        self.find(stream)
    }

    /// The index of the stream that was asked for last, if it is this one.
    #[inline(always)]
    pub(crate) fn known(&self, stream: Stream) -> Option<u16> {
        (self.names.get(self.last) == Some(&stream)).then_some(self.last as u16)
    }

    fn find(&mut self, stream: Stream) -> Result<u16, Error> {
        if let Some(at) = self.names[1..].iter().position(|name| *name == stream) {
            self.last = at + 1;
            return Ok(self.last as u16);
        }
        if self.names.len() > MAX_STREAMS {
            return Err(Error::TooManyStreams { limit: MAX_STREAMS });
        }
        self.names.push(stream);
        self.lines.push(Line::new());
        self.last = self.names.len() - 1;
        Ok(self.last as u16)
    }

    #[inline]
    pub(crate) fn name(&self, index: u16) -> Stream {
        self.names[index as usize]
    }

    #[inline]
    pub(crate) fn line(&self, index: u16) -> &Line {
        &self.lines[index as usize]
    }

    #[inline]
    pub(crate) fn line_mut(&mut self, index: u16) -> &mut Line {
        &mut self.lines[index as usize]
    }

    /// The quick lists of a stream for blocks of a size.
    #[inline(always)]
    pub(crate) fn quick(&mut self, stream: u16, size: u64) -> &mut Quick {
        &mut self.line_mut(stream).quick[usize::from(size > SMALL_MAX)]
    }

    /// Every stream, and [`ANY`].
    pub(crate) fn indices(&self) -> impl Iterator<Item = u16> + use<> {
        ANY..self.lines.len() as u16
    }

    /// Every real stream but this one.
    pub(crate) fn others(&self, stream: u16) -> impl Iterator<Item = u16> + use<> {
        self.indices().filter(move |other| *other != stream && *other != ANY)
    }
}
