//! The past of a device: one column per second, a longer run of samples, and the events worth a mark.

use std::collections::VecDeque;
use std::sync::Arc;

use super::partition::Partition;
use super::process::ProcessId;
use super::{Nanos, SECOND};

/// Columns of the short history.
pub const SECONDS: usize = 60;
/// Samples of the long history.
pub const LONG_SAMPLES: usize = 600;
/// Marks kept per device.
pub const MAX_MARKS: usize = 512;

/// A device's memory at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// When.
    pub at: Nanos,
    /// Its memory then.
    pub memory: Partition,
}

/// What a mark on the timeline stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MarkKind {
    /// A request failed.
    OutOfMemory,
    /// A request was retried after making room.
    Retry,
    /// Memory was taken from the driver.
    SegmentTaken,
    /// Memory went back to the driver.
    SegmentFreed,
    /// The cache was released.
    CacheReleased,
    /// Holes were joined by remapping.
    Remapped,
    /// The program's own mark ("forward").
    Phase,
}

/// An event on the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Nanos,
    /// What.
    pub kind: MarkKind,
    /// Whose.
    pub process: ProcessId,
    /// Bytes concerned: asked for (out of memory), taken, freed, made contiguous.
    pub bytes: u64,
    /// The mark's name or the tag of the request; empty when there is none.
    pub text: Arc<str>,
}

/// The past of a device, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// One point per second of the clock, the one with most memory in use; at most [`SECONDS`].
    pub seconds: VecDeque<Point>,
    /// One point per sample; at most [`LONG_SAMPLES`].
    pub long: VecDeque<Point>,
    /// Events by time; at most [`MAX_MARKS`].
    pub marks: VecDeque<Mark>,
    /// Events that happened and could not be shown (overwritten in the channel, or more than fit here).
    pub marks_lost: u64,
}

impl History {
    /// Adds a sample. Samples older than the newest are dropped: a clock that jumps must not draw a zigzag.
    pub fn push(&mut self, point: Point) {
        if self.long.back().is_some_and(|last| last.at >= point.at) {
            return;
        }
        push_bounded(&mut self.long, point, LONG_SAMPLES);
        match self.seconds.back_mut() {
            Some(last) if last.at / SECOND == point.at / SECOND => {
                if point.memory.used() >= last.memory.used() {
                    *last = point;
                }
            }
            _ => push_bounded(&mut self.seconds, point, SECONDS),
        }
    }

    /// Adds an event; the oldest gives way.
    pub fn mark(&mut self, mark: Mark) {
        let place = self.marks.partition_point(|m| m.at <= mark.at);
        self.marks.insert(place, mark);
        if self.marks.len() > MAX_MARKS {
            self.marks.pop_front();
            self.marks_lost += 1;
        }
    }
}

fn push_bounded<T>(ring: &mut VecDeque<T>, value: T, limit: usize) {
    if ring.len() == limit {
        ring.pop_front();
    }
    ring.push_back(value);
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
