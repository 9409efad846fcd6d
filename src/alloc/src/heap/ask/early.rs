//! Streams that are asked how far they are before others need what they gave back.
//!
//! While the GPU is behind, an event that is left on a stream only when another one is short of memory is done too late: new memory is taken
//! until then, whatever was given back long ago, and with every turn of who needs much more of it. So a stream that gave back much is asked
//! at once, and the last event on it is one after most of that.

use super::probe;
use crate::error::Error;
use crate::heap::Heap;
use crate::heap::turn::access::Access;

/// The part of what is reserved that a stream gives back until it is asked again.
const PART: u64 = 16;

/// Asks streams. Those that still are where they were have a later event recorded, once what is left of [errands](super::errands) is done.
pub(super) fn ask_early(on: &mut impl Access, lines: Vec<u16>) -> Result<(), Error> {
    probe(on, |_| lines.clone())?;
    on.heap(|heap| lines.into_iter().for_each(|line| heap.leave_later(line)))
}

impl Heap {
    /// A block is given back while the GPU is behind.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn note_given_back(&mut self, b: u32) {
        let (at, size, reserved) = (self.blocks[b].stream, self.size_of(b), self.ledger.reserved());
        // Others' own streams have no events, and those that have ended had their last one.
        let asks =
            self.shares_across_streams && !self.streams.name(at).is_per_thread() && !self.streams.line(at).is_retired();
        let line = self.streams.line_mut(at);
        line.given_back += size;
        if asks && line.given_back >= reserved / PART {
            line.given_back = 0;
            self.leave_early(at);
        }
    }

    /// An event behind all that a stream was given so far, if one before it is not done yet.
    fn leave_later(&mut self, at: u16) {
        let frees = self.frees;
        let line = self.streams.line(at);
        let waits = line.marker.as_ref().is_some_and(|(_, count)| *count < frees);
        if !waits || line.is_retired() || self.capturing() {
            return;
        }
        self.tick(at);
        let event = self.leave_event(at);
        self.streams.line_mut(at).later = Some((event, frees));
    }
}
