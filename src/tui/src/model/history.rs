//! The history of a device: recent samples, one point a second for longer, and the events that have a mark.

use std::collections::VecDeque;
use std::sync::Arc;

use super::partition::Partition;
use super::past::{Step, sum};
use super::process::ProcessId;
use super::spread::Spread;
use super::{Nanos, SECOND};

/// Points kept per device at each of the two resolutions: two minutes at five glances a second, and ten minutes at one point
/// a second.
pub(crate) const MAX_POINTS: usize = 600;
/// Least time between two scans for new channels.
pub(crate) const DISCOVER: Nanos = 2 * SECOND;
/// Marks kept per device.
pub(crate) const MAX_MARKS: usize = 512;

/// Seconds between two redraws of a graph that does not change.
const QUIET_STEP: u64 = 5;

/// A device's memory at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Point {
    /// When it was sampled.
    pub at: Nanos,
    /// Its memory then.
    pub memory: Partition,
}

/// A device's memory during a second of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Second {
    /// When the fullest sample was taken.
    pub at: Nanos,
    /// The fullest sample.
    pub memory: Partition,
    /// The least and the most of all samples, as [`Partition::tops`].
    pub spread: Spread<[u64; 3]>,
}

/// What a mark on the timeline stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MarkKind {
    /// A request failed.
    OutOfMemory,
    /// A request was retried after cached memory was released.
    Retry,
    /// Memory was taken from the driver: a segment, or chunks of a virtual one.
    SegmentTaken,
    /// Memory went back to the driver.
    SegmentFreed,
    /// The cache was released.
    CacheReleased,
    /// Holes were joined by remapping.
    Remapped,
    /// Managed memory began to move between the CPU and a GPU.
    Migration,
    /// The allocator's monitor found something, or did something about it.
    Monitor,
    /// The program's own mark ("forward").
    Phase,
    /// The program ended without closing its channel: it was killed, or crashed. The time is that of its last sign of life.
    Died,
    /// The program exited.
    Exited,
}

/// An event on the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// When it happened.
    pub at: Nanos,
    /// What happened.
    pub kind: MarkKind,
    /// The process that it happened in.
    pub process: ProcessId,
    /// Bytes that were requested (out of memory), taken, freed or made contiguous.
    pub bytes: u64,
    /// The number of a phase that has one, such as a step; else 0.
    pub number: u64,
    /// The mark's name or the tag of the request; empty when there is none.
    pub text: Arc<str>,
}

impl Mark {
    /// Checks whether it is of the most frequent and least important kind.
    fn is_routine(&self) -> bool {
        matches!(self.kind, MarkKind::SegmentTaken | MarkKind::SegmentFreed)
    }

    /// Checks whether it is a phase mark of the program. There may be hundreds of these a second.
    fn is_phase(&self) -> bool {
        self.kind == MarkKind::Phase
    }

    /// Checks whether `next` is of the same kind and process and in the same second, whatever its tag.
    pub(crate) fn is_continued_by(&self, next: &Mark) -> bool {
        let same = (self.kind, self.process) == (next.kind, next.process);
        same && self.is_routine() && self.at / SECOND == next.at / SECOND
    }

    /// Merges `next` into this mark if it also has the same tag, because a program that grows takes its memory in hundreds of
    /// pieces. Returns whether it did.
    pub(crate) fn merge_next(&mut self, next: &Mark) -> bool {
        let same = self.is_continued_by(next) && self.text == next.text;
        if same {
            self.at = self.at.max(next.at);
            self.bytes = self.bytes.saturating_add(next.bytes);
        }
        same
    }
}

/// The history of a device, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The seconds of the clock that have samples; at most [`MAX_POINTS`].
    pub seconds: VecDeque<Second>,
    /// One point per sample and glance; at most [`MAX_POINTS`].
    pub long: VecDeque<Point>,
    /// Events by time; at most [`MAX_MARKS`].
    pub marks: VecDeque<Mark>,
    /// What publishers held before the first sample; at most [`MAX_STEPS`](super::past::MAX_STEPS).
    pub past: Vec<Step>,
    /// Number of events that were overwritten in the channel before they were read.
    pub marks_lost: u64,
    /// The time up to which events are missing because they were overwritten, also before the first pass; 0 if none are.
    pub lost_until: Nanos,
    /// Number of events that were read and dropped because the list was full.
    pub marks_dropped: u64,
    /// The time of the newest dropped event that is not a phase; 0 if there is none.
    pub dropped_until: Nanos,
}

impl History {
    /// Inserts a point by its time, since samplers may hand over points out of order.
    pub(crate) fn push(&mut self, point: Point) {
        let at = place(&self.long, |p| p.at < point.at);
        if self.long.get(at).is_some_and(|p| p.at == point.at) {
            return;
        }
        insert_bounded(&mut self.long, at, point);
        let Point { at, memory } = point;
        let spread = Spread::of(memory.tops());
        let place = place(&self.seconds, |second| second.at / SECOND < at / SECOND);
        match self.seconds.get_mut(place) {
            Some(known) if known.at / SECOND == at / SECOND => {
                known.spread.add(&spread);
                if memory.fullness() >= known.memory.fullness() {
                    (known.at, known.memory) = (at, memory);
                }
            }
            _ => insert_bounded(&mut self.seconds, place, Second { at, memory, spread }),
        }
    }

    /// Iterates over the tops of all moments, oldest first: seconds, and then samples as far back as those reach.
    pub(crate) fn tops(&self) -> impl Iterator<Item = (Nanos, Spread<[u64; 3]>)> {
        let fine = self.long.front().map_or(u64::MAX, |p| p.at / SECOND);
        let coarse = self.seconds.iter().take_while(move |p| p.at / SECOND < fine);
        let coarse = coarse.map(|second| (second.at, second.spread));
        coarse.chain(
            self.long
                .iter()
                .map(|point| (point.at, Spread::of(point.memory.tops()))),
        )
    }

    /// Returns the second at the right edge of a graph of seconds.
    ///
    /// That is the newest second. While nothing changes it advances only every fifth second, so that an idle machine is redrawn
    /// rarely and sends little to the terminal.
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

    /// Adds what a publisher held before the first sample, or before `now` if there is none.
    pub(crate) fn add_past(&mut self, steps: &[Step], now: Nanos) {
        let end = self.tops().next().map_or(now, |(at, _)| at);
        self.past = sum(&self.past, steps, end);
    }

    /// Returns the moment before which only what publishers held is known, if some of that is between two moments.
    pub(crate) fn told_until(&self, from: Nanos, to: Nanos) -> Option<Nanos> {
        let (first, _) = self.tops().next()?;
        let shown = self.past.iter().any(|step| step.until > from && step.at < to);
        shown.then_some(first)
    }

    /// Returns the time between the oldest and the newest point that is known.
    pub(crate) fn reach(&self) -> Nanos {
        let past = self.past.first().map(|step| step.at);
        let oldest = past.or_else(|| self.tops().next().map(|(at, _)| at));
        let ends = oldest.zip(self.long.back());
        ends.map_or(0, |(oldest, newest)| newest.at.saturating_sub(oldest))
    }

    /// Returns the index of the mark to drop: the oldest routine or phase mark, whichever are more; without such marks the oldest
    /// that is not a failed request.
    fn least_important(&self) -> usize {
        let count = |of: fn(&Mark) -> bool| self.marks.iter().filter(|mark| of(mark)).count();
        let (routine, phases) = (count(Mark::is_routine), count(Mark::is_phase));
        let least: fn(&Mark) -> bool = match routine.max(phases) {
            0 => |mark| !matches!(mark.kind, MarkKind::OutOfMemory | MarkKind::Died),
            most if most == routine => Mark::is_routine,
            _ => Mark::is_phase,
        };
        self.marks.iter().position(least).unwrap_or(0)
    }

    /// Adds an event. When the list is full, the least important one is dropped.
    pub(crate) fn mark(&mut self, mark: Mark) {
        if self.marks.capacity() == 0 {
            self.marks.reserve_exact(MAX_MARKS + 1);
        }
        let place = self.marks.partition_point(|m| m.at <= mark.at);
        // Programs may take memory for several tags in turn.
        let before = self.marks.range(..place).rev();
        let same = before.take_while(|m| m.is_continued_by(&mark)).count();
        for at in (place - same..place).rev() {
            if self.marks.get_mut(at).is_some_and(|before| before.merge_next(&mark)) {
                // A merged mark has the time of its newest part.
                if let Some(known) = self.marks.remove(at) {
                    self.marks.insert(place - 1, known);
                }
                return;
            }
        }
        self.marks.insert(place, mark);
        if self.marks.len() > MAX_MARKS {
            let gone = self
                .marks
                .remove(self.least_important())
                .filter(|mark| !mark.is_phase());
            self.dropped_until = gone.map_or(self.dropped_until, |mark| self.dropped_until.max(mark.at));
            self.marks_dropped += 1;
        }
    }
}

/// Returns the index behind the last point that is `before`. Searches from the back, since points arrive nearly in order.
fn place<T>(ring: &VecDeque<T>, before: impl Fn(&T) -> bool) -> usize {
    ring.iter().rposition(before).map_or(0, |i| i + 1)
}

/// Inserts a moment. In a full ring the oldest one is dropped, which may be the new one.
fn insert_bounded<T>(ring: &mut VecDeque<T>, place: usize, moment: T) {
    if ring.capacity() == 0 {
        // Growing by doubling would allocate more than needed and fragment the heap.
        ring.reserve_exact(MAX_POINTS);
    }
    if ring.len() < MAX_POINTS {
        ring.insert(place, moment);
    } else if let Some(place) = place.checked_sub(1) {
        ring.pop_front();
        ring.insert(place, moment);
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
