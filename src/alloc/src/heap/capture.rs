//! Captures of CUDA graphs. What a stream is told while a graph is captured from it becomes part of the graph, and calls that wait or look
//! how far the device is end the capture. So from the beginning of one to its end nothing is waited for, no event is recorded or queried
//! and nothing goes back to the driver, in any pool: memory is taken from what is there, or new.

use std::sync::Arc;

use super::Heap;
use super::turn::access::Access;
use crate::error::Error;

/// A capture begins, once nobody asks anything any more. To be called by who has the turn, so that nobody waits for the device or gives memory
/// back.
pub(crate) fn begin_capture(on: &mut impl Access) -> Result<(), Error> {
    let asked = on.heap(|heap| {
        heap.captures += 1;
        Arc::clone(&heap.asked)
    })?;
    asked.wait_for_all();
    on.heap(|heap| heap.tell_capturing())
}

impl Heap {
    #[inline]
    pub(crate) fn capturing(&self) -> bool {
        self.captures > 0
    }

    /// Tells the driver when the first capture has begun and when the last one has ended.
    fn tell_capturing(&mut self) {
        if self.capture_told != self.capturing() {
            self.capture_told = self.capturing();
            self.driver.capturing(self.capture_told);
        }
    }

    /// There are none any more.
    pub(super) fn forget_captures(&mut self) {
        self.captures = 0;
        self.tell_capturing();
    }

    pub(super) fn not_capturing(&self) -> Result<(), Error> {
        match self.captures {
            0 => Ok(()),
            _ => Err(Error::Capturing),
        }
    }

    /// A capture ends, or one more is known to have ended.
    pub(crate) fn end_capture(&mut self) {
        self.captures = self.captures.saturating_sub(1);
        self.tell_capturing();
        if self.captures == 0 {
            self.wait_for_users_of_meanwhile();
            self.look_at_all_closing();
        }
    }

    /// Blocks that were freed meanwhile and that other streams used wait for one event on each of these: the last one's, as those before it
    /// are done by then. Else the memory of a graph's pool would stay, when that is gone, until the device is waited for; and a program may
    /// have so many pools.
    fn wait_for_users_of_meanwhile(&mut self) {
        if self.streams.pending == 0 {
            return;
        }
        for at in self.streams.awaited() {
            if self.is_known_to_live(at) && !self.streams.line(at).is_retired() {
                self.wait_for_all_before(at);
            }
        }
        self.leave_poll();
    }
}
