//! Which lines there are: by stream, by arena, and those at which there is something to do. A server has thousands of lines of idle pools,
//! and what one request costs must not grow with them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::heap::arena::COMMON;
use crate::stream::Stream;

/// The lines of one arena.
#[derive(Debug, Default)]
struct Lines {
    /// That of what is nobody's.
    any: u16,
    /// Those of streams, lowest first.
    streams: Vec<u16>,
}

/// The lines of all arenas, but for what they are.
#[derive(Debug, Default)]
pub(super) struct Register {
    /// Of streams that have not ended.
    named: BTreeMap<(Stream, u16), u16>,
    /// By number.
    arenas: Vec<Lines>,
    /// That wait for the next stream or arena: the lowest is the first to be had.
    vacant: BinaryHeap<Reverse<u16>>,
    /// Of streams in pools.
    in_pools: usize,
    /// Of streams that have ended, lowest first.
    ended: Vec<u16>,
    /// That have a lane, or room for what is set aside of stitched memory; lowest first.
    draining: Vec<u16>,
    /// At which blocks wait, and some at which none does any more; lowest first.
    awaited: Vec<u16>,
}

/// Puts a line where it belongs, if it is not there.
fn put(lines: &mut Vec<u16>, at: u16) {
    if let Err(place) = lines.binary_search(&at) {
        lines.insert(place, at);
    }
}

fn take(lines: &mut Vec<u16>, at: u16) {
    if let Ok(place) = lines.binary_search(&at) {
        lines.remove(place);
    }
}

impl Register {
    /// The line of a stream in an arena, if that has not ended.
    pub(super) fn find(&self, arena: u16, stream: Stream) -> Option<u16> {
        self.named.get(&(stream, arena)).copied()
    }

    /// The lines of a stream that has not ended.
    pub(super) fn named(&self, stream: Stream) -> impl Iterator<Item = u16> {
        let lines = self.named.range((stream, COMMON)..=(stream, u16::MAX));
        lines.map(|(_, at)| *at)
    }

    /// Threads' own streams of which it is not known that they have ended, one for each line.
    pub(super) fn per_thread(&self) -> impl Iterator<Item = Stream> {
        let lines = self.named.range((Stream::FIRST_PER_THREAD, COMMON)..);
        lines.map(|((stream, _), _)| *stream)
    }

    /// The lines of an arena's streams.
    #[inline]
    pub(super) fn of(&self, arena: u16) -> &[u16] {
        self.arenas
            .get(usize::from(arena))
            .map_or(&[], |lines| lines.streams.as_slice())
    }

    /// The line of what is nobody's in an arena.
    pub(super) fn any_of(&self, arena: u16) -> u16 {
        self.arenas.get(usize::from(arena)).map_or(0, |lines| lines.any)
    }

    pub(super) fn in_pools(&self) -> usize {
        self.in_pools
    }

    pub(super) fn ended(&self) -> &[u16] {
        &self.ended
    }

    /// A line that is vacant no more.
    pub(super) fn take_vacant(&mut self) -> Option<u16> {
        self.vacant.pop().map(|Reverse(at)| at)
    }

    /// An arena is there, with this line of what is nobody's.
    pub(super) fn open(&mut self, arena: u16, any: u16) {
        let number = usize::from(arena);
        if self.arenas.len() <= number {
            self.arenas.resize_with(number + 1, Lines::default);
        }
        self.arenas[number].any = any;
    }

    pub(super) fn add(&mut self, at: u16, arena: u16, stream: Stream) {
        put(&mut self.arenas[usize::from(arena)].streams, at);
        self.named.insert((stream, arena), at);
        self.in_pools += usize::from(arena != COMMON);
    }

    /// The stream of a line has ended.
    pub(super) fn end(&mut self, at: u16, arena: u16, stream: Stream) {
        self.named.remove(&(stream, arena));
        put(&mut self.ended, at);
    }

    /// A line is vacant.
    pub(super) fn vacate(&mut self, at: u16, arena: u16, stream: Stream) {
        // Another line may have the name of one that has ended.
        if self.find(arena, stream) == Some(at) {
            self.named.remove(&(stream, arena));
        }
        take(&mut self.ended, at);
        if let Some(lines) = self.arenas.get_mut(usize::from(arena))
            && let Ok(place) = lines.streams.binary_search(&at)
        {
            lines.streams.remove(place);
            self.in_pools -= usize::from(arena != COMMON);
        }
        self.vacant.push(Reverse(at));
    }

    /// Lines that may have something set aside.
    pub(super) fn draining(&self) -> &[u16] {
        &self.draining
    }

    /// Whether a line may have something set aside.
    pub(super) fn set_draining(&mut self, at: u16, may: bool) {
        match may {
            true => put(&mut self.draining, at),
            false => take(&mut self.draining, at),
        }
    }

    /// Blocks begin to wait at a line.
    pub(super) fn await_at(&mut self, at: u16) {
        put(&mut self.awaited, at);
    }

    /// Whether a line is among those at which blocks may wait.
    #[cfg(test)]
    pub(super) fn has_awaited(&self, at: u16) -> bool {
        self.awaited.contains(&at)
    }

    /// The lines at which blocks wait, lowest first.
    pub(super) fn awaited(&mut self, waits: impl Fn(u16) -> bool) -> &[u16] {
        self.awaited.retain(|at| waits(*at));
        &self.awaited
    }
}

#[cfg(test)]
mod tests {
    use super::Register;

    /// Most programs are never asked at which lines blocks wait.
    #[test]
    fn a_line_at_which_blocks_wait_again_and_again_is_kept_once() {
        let mut register = Register::default();
        for at in [7, 2, 7, 2] {
            register.await_at(at);
        }
        assert_eq!(register.awaited, [2, 7]);
    }
}
