//! The past of a device: samples of the last minutes, seconds of more, and the events worth a mark.

use std::collections::VecDeque;
use std::sync::Arc;

use super::partition::Partition;
use super::process::ProcessId;
use super::{Nanos, SECOND};

/// Points kept per device at each of the two resolutions: two minutes of glances five times a second, and ten minutes
/// of seconds.
pub(crate) const MAX_POINTS: usize = 600;
/// How often new channels are looked for, at most.
pub(crate) const DISCOVER: Nanos = 2 * SECOND;
/// Marks kept per device.
pub(crate) const MAX_MARKS: usize = 512;

/// Seconds between two moves of a graph that does not change.
const QUIET_STEP: u64 = 5;

/// A device's memory at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Point {
    /// When it was sampled.
    pub at: Nanos,
    /// Its memory then.
    pub memory: Partition,
}

/// What a mark on the timeline stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MarkKind {
    /// A request failed.
    OutOfMemory,
    /// A request was retried after making room.
    Retry,
    /// Memory was taken from the driver: a segment, or chunks of a virtual one.
    SegmentTaken,
    /// Memory went back to the driver.
    SegmentFreed,
    /// The cache was released.
    CacheReleased,
    /// Holes were joined by remapping.
    Remapped,
    /// The allocator's monitor found something, or did something about it.
    Monitor,
    /// The program's own mark ("forward").
    Phase,
}

/// An event on the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// When it happened.
    pub at: Nanos,
    /// What happened.
    pub kind: MarkKind,
    /// Whose.
    pub process: ProcessId,
    /// Bytes concerned: asked for (out of memory), taken, freed, made contiguous.
    pub bytes: u64,
    /// The mark's name or the tag of the request; empty when there is none.
    pub text: Arc<str>,
}

impl Mark {
    /// Whether it is of the kind that comes most often and matters least.
    fn is_routine(&self) -> bool {
        matches!(self.kind, MarkKind::SegmentTaken | MarkKind::SegmentFreed)
    }

    /// Whether the program made it: of these there may be hundreds a second.
    fn is_phase(&self) -> bool {
        self.kind == MarkKind::Phase
    }

    /// Whether what happened next is more of the same in the same second, whoever it was for.
    pub(crate) fn goes_on_in(&self, next: &Mark) -> bool {
        let same = (self.kind, self.process) == (next.kind, next.process);
        same && self.is_routine() && self.at / SECOND == next.at / SECOND
    }

    /// Takes in what happened next, if it is more of the same in the same second: a program that grows takes its memory in hundreds of
    /// pieces. Whether it did.
    pub(crate) fn take_in(&mut self, next: &Mark) -> bool {
        let takes = self.goes_on_in(next) && self.text == next.text;
        if takes {
            self.at = self.at.max(next.at);
            self.bytes = self.bytes.saturating_add(next.bytes);
        }
        takes
    }
}

/// The past of a device, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// One point per second of the clock, the fullest; at most [`MAX_POINTS`].
    pub seconds: VecDeque<Point>,
    /// One point per sample and glance; at most [`MAX_POINTS`].
    pub long: VecDeque<Point>,
    /// Events by time; at most [`MAX_MARKS`].
    pub marks: VecDeque<Mark>,
    /// Events that nobody saw: overwritten in the channel before they were read.
    pub marks_lost: u64,
    /// Until when events were overwritten that nobody saw, before anybody looked, too; 0 where none were.
    pub lost_until: Nanos,
    /// Events that were seen and gave way, as there were more than fit here.
    pub marks_dropped: u64,
    /// When the newest of these was that is no phase; 0 where there is none.
    pub dropped_until: Nanos,
}

impl History {
    /// Adds a point where its time puts it: samplers may hand over out of order, and nothing is drawn as a zigzag.
    pub(crate) fn push(&mut self, point: Point) {
        let at = place(&self.long, |p| p.at < point.at);
        if self.long.get(at).is_some_and(|p| p.at == point.at) {
            return;
        }
        insert_bounded(&mut self.long, at, point);
        let second = point.at / SECOND;
        let at = place(&self.seconds, |p| p.at / SECOND < second);
        match self.seconds.get_mut(at) {
            Some(known) if known.at / SECOND == second => {
                if point.memory.fullness() >= known.memory.fullness() {
                    *known = point;
                }
            }
            _ => insert_bounded(&mut self.seconds, at, point),
        }
    }

    /// Every point, oldest first: seconds, and from where they begin, samples.
    pub(crate) fn points(&self) -> impl Iterator<Item = &Point> {
        let fine = self.long.front().map_or(u64::MAX, |p| p.at / SECOND);
        let coarse = self.seconds.iter().take_while(move |p| p.at / SECOND < fine);
        coarse.chain(&self.long)
    }

    /// The second at the right edge of a graph of seconds: the newest. While nothing changes it moves on every fifth second
    /// only, so that a quiet machine is drawn seldom and sends next to nothing to the terminal; the picture is the same
    /// but for where it ends on the left.
    pub(crate) fn edge(&self) -> Option<u64> {
        let points = &self.seconds;
        let last = points.back()?;
        let newest = last.at / SECOND;
        let rounded = newest - newest % QUIET_STEP;
        let mut before = points.iter().rev().skip_while(|p| p.at / SECOND > rounded);
        let quiet = before.next().is_some_and(|p| p.at / SECOND == rounded)
            && points
                .iter()
                .rev()
                .take_while(|p| p.at / SECOND >= rounded)
                .all(|p| p.memory == last.memory);
        Some(if quiet { rounded } else { newest })
    }

    /// How far back it reaches from its newest point.
    pub(crate) fn reach(&self) -> Nanos {
        let ends = self.points().next().zip(self.long.back());
        ends.map_or(0, |(oldest, newest)| newest.at.saturating_sub(oldest.at))
    }

    /// The mark that gives way: of what comes often, the oldest of the sort that there is more of; then the oldest but for requests that failed.
    fn least(&self) -> usize {
        let count = |of: fn(&Mark) -> bool| self.marks.iter().filter(|mark| of(mark)).count();
        let (routine, phases) = (count(Mark::is_routine), count(Mark::is_phase));
        let least: fn(&Mark) -> bool = match routine.max(phases) {
            0 => |mark| mark.kind != MarkKind::OutOfMemory,
            most if most == routine => Mark::is_routine,
            _ => Mark::is_phase,
        };
        self.marks.iter().position(least).unwrap_or(0)
    }

    /// Adds an event; the oldest of those that matter least gives way.
    pub(crate) fn mark(&mut self, mark: Mark) {
        if self.marks.capacity() == 0 {
            self.marks.reserve_exact(MAX_MARKS + 1);
        }
        let place = self.marks.partition_point(|m| m.at <= mark.at);
        // Programs take memory for several things in turn.
        let before = self.marks.range(..place).rev();
        let same = before.take_while(|m| m.goes_on_in(&mark)).count();
        for at in (place - same..place).rev() {
            if self.marks.get_mut(at).is_some_and(|before| before.take_in(&mark)) {
                // It is as late as its newest part.
                if let Some(known) = self.marks.remove(at) {
                    self.marks.insert(place - 1, known);
                }
                return;
            }
        }
        self.marks.insert(place, mark);
        if self.marks.len() > MAX_MARKS {
            let gone = self.marks.remove(self.least()).filter(|mark| !mark.is_phase());
            self.dropped_until = gone.map_or(self.dropped_until, |mark| self.dropped_until.max(mark.at));
            self.marks_dropped += 1;
        }
    }
}

/// The first point that is not `before`, from the back: points are nearly in order.
fn place(ring: &VecDeque<Point>, before: impl Fn(&Point) -> bool) -> usize {
    ring.iter().rposition(before).map_or(0, |i| i + 1)
}

/// Puts a point in its place; the oldest gives way. One that would be the oldest of a full ring is dropped.
fn insert_bounded(ring: &mut VecDeque<Point>, place: usize, point: Point) {
    if ring.capacity() == 0 {
        // Growing by doubling would end at half as much again, and leave holes behind.
        ring.reserve_exact(MAX_POINTS);
    }
    if ring.len() < MAX_POINTS {
        ring.insert(place, point);
    } else if let Some(place) = place.checked_sub(1) {
        ring.pop_front();
        ring.insert(place, point);
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
