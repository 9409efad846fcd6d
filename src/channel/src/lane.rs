//! What is published about one stream of a device by somebody other than the publisher, and at the same time.

use crate::publisher::Operation;
use crate::record::{Block, Event};
use crate::stats::LaneFigures;
use crate::writer::Told;

/// No lane can be opened yet.
#[derive(Debug)]
enum Never {}

/// The events, figures and block states of one stream, published beside the [`Publisher`](crate::Publisher) by whoever holds this.
///
/// It keeps the channel's memory, but not its life sign. In a forked child every method does nothing.
#[derive(Debug)]
pub struct Lane(Never);

impl Lane {
    /// [`Publisher::operation`](crate::Publisher::operation), of a block that this lane was lent. The figures due are the lane's.
    #[inline(always)]
    pub fn operation(&mut self, _operation: &Operation<'_>) -> Told {
        match self.0 {}
    }

    /// Rewrites a slot without an event, because that of its neighbour changed. Only between
    /// [`Publisher::segment_begin`](crate::Publisher::segment_begin) and the end of that change. Returns false if the table has no such
    /// slot.
    pub fn block(&mut self, _slot: u32, _block: &Block, _next: Option<u32>) -> bool {
        match self.0 {}
    }

    /// Appends an event whose figures do not follow from it: [`Lane::figures`] has to.
    pub fn event(&mut self, _event: &Event) {
        match self.0 {}
    }

    /// Publishes the lane's figures: when [`Told::figures_due`] says so, or after [`Lane::event`].
    pub fn figures(&mut self, _figures: &LaneFigures) {
        match self.0 {}
    }

    /// Ends the lane: its last figures stay, and nothing more is published on it.
    pub fn close(&mut self) {
        match self.0 {}
    }
}
