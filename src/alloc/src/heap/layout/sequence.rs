//! The last requests of one stream, and which of them are coming again.

use super::{MOST, Placement};
use crate::heap::NIL;

/// Requests in a row that came as they came before in a program that seems to repeat itself.
pub(super) const RUN: usize = if cfg!(test) { 4 } else { 64 };

/// Bits of a digest: a context is 64 bits of them.
const DIGEST: u32 = if cfg!(test) { 32 } else { 8 };

/// Requests in a context.
pub(super) const CONTEXT: usize = (u64::BITS / DIGEST) as usize;

/// Of contexts one in so many, by what they are, is an anchor: only these are looked up and can be found. Where all are different, looking
/// for each would cost a miss of the cache or two every time; where things come again, one of the next will be an anchor.
const ANCHORS: u64 = if cfg!(test) { 2 } else { 8 };

/// Requests without an anchor after which each is looked up, and one in so many can be found: a short round may have none.
const GAP: usize = if cfg!(test) { 4 } else { 32 };

/// Rounds that have to come as they came before, at most, until requests are placed as before: one at first, and twice as many once that was
/// of no use. Many programs do something else every ten rounds or so, and would never come to a row of more.
pub(super) const MOST_ROUNDS: usize = 2;

/// Of a round that is known by its beginning alone one request in so many may find its place taken, by a small block mostly.
const TAKEN: usize = 16;

/// Requests of a round, or as long as it is, after which it has failed if half of them found their places taken: what went elsewhere is in
/// the way of others, and so on for ever. In what is shorter that ends by itself.
const LONG: usize = if cfg!(test) { 64 } else { 4096 };

/// How often the rounds that have to come as before are doubled, at most, while they fail.
const MOST_FAILED: u32 = 3;

/// A request of a sequence: half a line of the cache. Most are written once and never looked at.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Entry {
    size: u64,
    /// What the request came after: digests of its size and those before it.
    context: u64,
    /// Its place: an address of the home segment, or an offset of a view, and which.
    place: u64,
    view: u32,
    serial: u32,
}

impl Entry {
    #[inline(always)]
    fn new(size: u64, context: u64, placement: Placement) -> Entry {
        let (place, view, serial) = match placement {
            Placement::Home(addr) => (addr, NIL, 0),
            Placement::View { view, serial, offset } => (offset, view, serial),
        };
        Entry {
            size,
            context,
            place,
            view,
            serial,
        }
    }

    fn placement(&self) -> Placement {
        match self.view {
            NIL => Placement::Home(self.place),
            view => Placement::View {
                view,
                serial: self.serial,
                offset: self.place,
            },
        }
    }
}

/// A request of so many bytes that was looked for, and where it is to go if that turns out to be free.
pub(super) type Asked = (u64, Option<Placement>);

/// Where a request is that can be found: its number in the ring, counted from 1, and what else tells its context from others. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known(u32);

/// Bits of the number.
const NUMBER: u32 = 18;
const _: () = assert!(MOST < 1 << NUMBER);

impl Known {
    #[inline(always)]
    fn new(at: usize, context: u64) -> Known {
        Known((at as u32 + 1) | Known::mark(context))
    }

    /// Its place in the ring, if it may be of this context.
    #[inline(always)]
    fn of(self, context: u64) -> Option<usize> {
        let number = (self.0 & ((1 << NUMBER) - 1)) as usize;
        (self.0 >> NUMBER << NUMBER == Known::mark(context))
            .then_some(number)?
            .checked_sub(1)
    }

    #[inline(always)]
    fn mark(context: u64) -> u32 {
        // Not the bits that its slot goes by.
        (context.wrapping_mul(0x9e37_79b9_7f4a_7c15) as u32) >> NUMBER << NUMBER
    }
}

/// The last requests of one stream: a ring, once there is no more room.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    ring: Vec<Entry>,
    /// Where the next one goes.
    end: usize,
    /// The next request if things go on as before.
    pub(super) expected: Option<usize>,
    /// Requests in a row that were the expected ones.
    pub(super) run: usize,
    /// Whether these go back nearly to where the expected ones begin: a whole round came as it came before.
    pub(super) in_round: bool,
    /// Whether a quarter of another one did, too.
    pub(super) well_in: bool,
    /// Whether so many did that what was of no use before says nothing any more.
    pub(super) settled: bool,
    /// Whether the round is known by its beginning alone.
    pub(super) supposed: bool,
    /// Requests that found their places taken since `run` was what it was when that was counted from.
    taken: usize,
    began: usize,
    /// How long the round is that comes again, and how many failed in a row.
    round: usize,
    failed: u32,
    /// The next request, if it was looked for and is not served yet.
    pub(super) asked: Option<Asked>,
    context: u64,
    /// Requests since the last anchor.
    since: usize,
    /// The last request with a context that can be found, by a digest of that, or beside it.
    known: Vec<Known>,
}

fn digest(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

fn extended(context: u64, size: u64) -> u64 {
    (context << DIGEST) | (digest(size) & ((1 << DIGEST) - 1))
}

#[inline(always)]
fn is_anchor(context: u64) -> bool {
    (digest(context) >> 24) & (ANCHORS - 1) == 0
}

impl Sequence {
    /// Where a request went before: as the one that followed on what was found last, or else on the same requests as now.
    pub(super) fn find(&mut self, size: u64, rounds: usize) -> Option<Placement> {
        let next = self.expected.map(|at| if at < self.ring.len() { at } else { 0 });
        let next = next.filter(|at| self.ring.get(*at).is_some_and(|entry| entry.size == size));
        let at = match next {
            Some(at) => {
                self.run += 1;
                at
            }
            None => {
                let Some(at) = self.same_context(size) else {
                    self.end_round();
                    return None;
                };
                self.run = self.came_before(at);
                at
            }
        };
        self.expected = Some(at + 1);
        let ago = self.ago(at);
        let rounds = rounds << self.failed;
        // Not the one that was looked up: nobody could know before that it was worth asking where that goes.
        let in_round = next.is_some() && self.run + ago / 32 + CONTEXT >= (ago * rounds).max(RUN);
        if in_round & !self.in_round & !self.supposed {
            (self.began, self.taken) = (self.run, 0);
        }
        (self.in_round, self.round) = (in_round, ago);
        self.well_in = self.in_round && self.run >= ago * rounds + ago / 4;
        self.supposed &= !self.well_in;
        self.settled = self.run >= 2 * MOST_ROUNDS * ago.max(RUN);
        Some(self.ring.get(at)?.placement())
    }

    /// Where the next one goes.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// How many requests ago one came that is at a place.
    fn ago(&self, at: usize) -> usize {
        match at < self.end {
            true => self.end - at,
            false => self.end + self.ring.len() - at,
        }
    }

    /// A round begins as it began when the sequence ended there: taken for one that came as before.
    pub(super) fn suppose(&mut self, at: usize) {
        // Its stream may have ended meanwhile.
        if at <= self.ring.len() {
            self.expected = Some(at);
            (self.run, self.supposed) = (self.ago(at) + RUN, true);
            (self.began, self.taken) = (self.run, 0);
        }
    }

    /// Its last request could not go where it went before. Whether too many could not: few for a round that is known by its beginning alone.
    pub(super) fn was_taken(&mut self) -> bool {
        self.taken += 1;
        let came = self.run.saturating_sub(self.began);
        if self.supposed {
            return self.taken * TAKEN > came;
        }
        if came < self.round.max(LONG) {
            return false;
        }
        let fails = self.taken * 2 > came;
        self.failed = if fails { (self.failed + 1).min(MOST_FAILED) } else { 0 };
        (self.began, self.taken) = (self.run, 0);
        fails
    }

    /// Requests in it.
    pub(super) fn held(&self) -> usize {
        self.ring.len()
    }

    pub(super) fn end_round(&mut self) {
        (self.run, self.in_round, self.well_in, self.settled) = (0, false, false, false);
        self.supposed = false;
    }

    fn same_context(&self, size: u64) -> Option<usize> {
        let context = extended(self.context, size);
        if !is_anchor(context) && self.since < GAP {
            return None;
        }
        let slot = self.slot(context);
        let [first, second] = [slot, slot ^ 1].map(|slot| self.known.get(slot).and_then(|known| known.of(context)));
        let at = first.or(second)?;
        (self.ring.get(at)?.context == context).then_some(at)
    }

    /// How many requests in a row, the next one last, came as those did whose last is at a place: a few may have come before one was an
    /// anchor.
    fn came_before(&self, at: usize) -> usize {
        let count = self.ring.len();
        let size = |end: usize, ago: usize| self.ring.get((end + count - ago) % count).map(|entry| entry.size);
        let same = (1..count.min(RUN)).take_while(|ago| size(at, *ago) == size(self.end, *ago));
        CONTEXT.max(1 + same.count())
    }

    #[inline(always)]
    fn slot(&self, context: u64) -> usize {
        digest(context) as usize & self.known.len().wrapping_sub(1)
    }

    /// Adds a request, in the place of the oldest if it must not grow. Whether it grew.
    pub(super) fn push(&mut self, size: u64, placement: Placement, may_grow: bool) -> bool {
        self.context = extended(self.context, size);
        let entry = Entry::new(size, self.context, placement);
        let grows = may_grow && self.end == self.ring.len();
        if grows {
            self.ring.push(entry);
        } else {
            self.end = if self.end < self.ring.len() { self.end } else { 0 };
            let Some(oldest) = self.ring.get_mut(self.end) else {
                return false;
            };
            *oldest = entry;
        }
        self.note(self.end, entry.context);
        self.end += 1;
        grows
    }

    /// Makes a request known by its context, if it can be found.
    fn note(&mut self, at: usize, context: u64) {
        let few = self.ring.len() / ANCHORS as usize + 1;
        if self.known.len() < 2 * few {
            self.known = vec![Known::default(); (4 * few).next_power_of_two()];
            self.since = 0;
            (0..at).for_each(|at| self.enter(at, self.ring[at].context));
        }
        self.enter(at, context);
    }

    #[inline(always)]
    fn enter(&mut self, at: usize, context: u64) {
        self.since = if is_anchor(context) { 0 } else { self.since + 1 };
        if self.since.is_multiple_of(GAP) {
            let (slot, new) = (self.slot(context), Known::new(at, context));
            let old = self.known[slot];
            // A short round has few anchors: two of them may want the same slot every time.
            if old != Known::default() && old.of(context).is_none() {
                self.known[slot ^ 1] = old;
            }
            self.known[slot] = new;
        }
    }
}

#[cfg(test)]
#[path = "sequence_tests.rs"]
mod tests;
