//! Size classes: small requests of sizes that seldom come again.
//!
//! A lane hands out blocks of exactly a request's size, so it has nothing for a program whose sizes are different each time: sequences of any
//! length, graphs of any degree. Where the lane of a stream serves few of its small requests, they get blocks of a few sizes instead, an
//! eighth apart, which do come again; and small requests may have more memory of their own, so that what is set aside can stay so. Where the
//! lane still serves few then, all is as before.
//!
//! Only where memory is stitched: elsewhere small memory has no share of its own that could grow.

use crate::heap::Heap;
use crate::heap::allocate::Request;
use crate::size::{Class, class_size, half};

/// Small requests of a stream that its lane did not serve before it is judged again.
const WINDOW: u32 = if cfg!(test) { 256 } else { 1024 };
/// Windows until small requests may have more memory, so that a program that is over by then needs no more; and until lanes have what they
/// need and it is judged whether that helps.
const SPREAD: u32 = 4;
const SETTLED: u32 = 8;
/// Blocks that are given back to the heap before it is tried again, doubled each time up to so many times as many.
const PAUSE: u64 = if cfg!(test) { 1024 } else { 1 << 16 };
const MOST_TIMES: u64 = 64;
/// The part of what a program ever held that small requests may hold and go by class. Where they hold more, what classes round up and what is
/// set aside is too much of all.
const FEW: u64 = 16;
/// The part of what a program ever held that small requests have memory of their own for, if that is no more than twice what they ever held.
const MOST: u64 = 16;
/// The part of what a program ever held that may be reserved beyond that before it matters that other memory is idle; and where the program
/// repeats itself.
const ENOUGH: u64 = 48;
const ENOUGH_AGAIN: u64 = 18;
/// The part of all that is reserved that is free in one piece where other memory is idle.
const IDLE: u64 = 32;

/// Whether a stream's small requests go by size class.
#[derive(Debug, Default)]
pub(in crate::heap) struct Classes {
    on: bool,
    /// Windows since then.
    windows: u32,
    /// Small requests that the lane did not serve, and what it had handed out when the window began.
    asked: u32,
    before: u64,
    /// The heap's free counter when it is tried again.
    until: u64,
    /// How many times longer than at first that is put off, each time it did not help.
    times: u64,
}

/// What a window comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Stay,
    Begin,
    End,
}

impl Classes {
    #[inline(always)]
    pub(in crate::heap) fn is_on(&self) -> bool {
        self.on
    }

    /// Its lane has handed out so many blocks before.
    pub(in crate::heap) fn begin(&mut self, handed_out: u64) {
        self.before = handed_out;
    }

    /// One more request was not served by the lane. Whether it is time to judge.
    #[inline(always)]
    pub(in crate::heap) fn asked(&mut self) -> bool {
        self.asked += 1;
        self.asked >= WINDOW
    }

    /// The lane has handed out so many blocks so far.
    fn judge(&mut self, handed_out: u64, frees: u64) -> Verdict {
        let (asked, came) = (u64::from(self.asked), handed_out.saturating_sub(self.before));
        (self.asked, self.before) = (0, handed_out);
        if !self.on {
            let begins = frees >= self.until && came * 4 < asked;
            return if begins { Verdict::Begin } else { Verdict::Stay };
        }
        self.windows = self.windows.saturating_add(1);
        // All that it was lent is among what it handed out.
        let by_itself = came.saturating_sub(asked);
        if self.windows > SETTLED && by_itself < 2 * asked {
            self.times = (self.times * 2).clamp(1, MOST_TIMES);
            self.until = frees + PAUSE * self.times;
            return Verdict::End;
        }
        Verdict::Stay
    }
}

impl Heap {
    /// The size of the block that a request of this size gets on a stream.
    #[inline(always)]
    pub(in crate::heap) fn block_size(&self, stream: u16, size: u64, class: Class) -> u64 {
        if (class == Class::Fine) & self.lends & self.streams.line(stream).classes.on {
            class_size(size)
        } else {
            size
        }
    }

    /// A window of a stream has ended.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn judge_classes(&mut self, stream: u16) {
        let Some(lane) = self.lane_of(stream) else {
            return self.streams.line_mut(stream).classes.asked = 0;
        };
        let handed_out = self.front.with(lane, |lane| lane.counts.came(0)[0]).unwrap_or(0);
        let verdict = self.streams.line_mut(stream).classes.judge(handed_out, self.frees);
        let on = match verdict {
            Verdict::Stay => return,
            Verdict::Begin if self.ledger.small_peak() > self.requested_peak(0) / FEW => return,
            Verdict::Begin => true,
            Verdict::End => false,
        };
        // In this order: other threads go on setting blocks aside, and from then on those that will be asked for.
        self.front.set_by_class(lane, on);
        self.drain(stream, 0);
        let classes = &mut self.streams.line_mut(stream).classes;
        (classes.on, classes.windows) = (on, 0);
    }

    /// Whether small requests may have more memory of their own than others, because it saves them the way to the heap. Once more than
    /// enough is reserved, not while the program holds much less than it did. Where it repeats itself a little more is enough: what is
    /// placed as it was before is not to find small blocks there.
    pub(in crate::heap) fn may_spread(&mut self, request: &Request, peak: u64) -> bool {
        let most = (peak / MOST).min(2 * self.ledger.small_peak());
        let settles = self.streams.line(request.stream).classes.windows >= SPREAD;
        let more = self.sizes.granularity;
        let enough = match self.layouts.repeats_for_long() {
            true => peak / ENOUGH_AGAIN,
            false => peak / ENOUGH,
        };
        self.goes_by_class(request)
            && settles
            && self.ledger.reserved_small() + more <= most
            && (self.ledger.reserved() + more <= peak + enough || !self.has_idle(request))
    }

    /// Whether so much is free among the large blocks, in one piece, that memory is not what is short.
    fn has_idle(&mut self, request: &Request) -> bool {
        let size = (self.ledger.reserved() / IDLE).next_multiple_of(self.sizes.granularity);
        let large = Request {
            size,
            ..request.among_large()
        };
        self.fit(&large).is_some()
    }

    #[inline(always)]
    pub(in crate::heap) fn goes_by_class(&self, request: &Request) -> bool {
        self.streams.line(request.stream).goes_by_class(half(request.size))
    }
}

#[cfg(test)]
#[path = "classes_tests.rs"]
mod tests;
