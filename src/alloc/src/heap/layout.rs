//! Remembered layouts: where the requests of a stream went when they came in this order before.
//!
//! A loop asks for the same sizes in the same order in every round, but best fit places them differently from round to round: it
//! begins with other free pieces than the round before. Then views that were mapped do not fit, and new ones are mapped, and so on. A
//! request that is placed as it was in the round before finds its memory free if everything before it was placed so, too; so a round
//! that repeats the one before maps nothing.
//!
//! Only large requests of stitched memory are remembered, and only while mapping costs more than remembering does: the quick ways past
//! the heap are closed to them meanwhile.

use crate::size::SMALL_MAX;

/// Requests that are remembered, of all streams together.
const MOST: usize = if cfg!(test) { 1024 } else { 1 << 17 };

/// Requests for which a program goes on remembering when one chunk was mapped once more. Each may cost 0.1 µs more meanwhile, and mapping
/// a chunk costs some 35 µs: remembering in vain costs a fifth of the mapping.
const WORTH: u64 = 64;

/// Requests that are remembered before anything is mapped once more.
const FIRST: u64 = 1024;

/// It goes on for so many times longer at most, doubled each time that mapping begins again after it ended.
const MOST_TIMES: u64 = 1 << 10;

/// Requests in a row that came as they came before in a program that seems to repeat itself.
const RUN: usize = if cfg!(test) { 4 } else { 64 };

/// Bits of a digest: a context is 64 bits of them.
const DIGEST: u32 = if cfg!(test) { 32 } else { 8 };

/// Requests in a context.
const CONTEXT: usize = (u64::BITS / DIGEST) as usize;

/// Of contexts one in so many, by what they are, is an anchor: only these are looked up and can be found. Where all are different, looking
/// for each would cost a miss of the cache or two every time; where things come again, one of the next will be an anchor.
const ANCHORS: u64 = if cfg!(test) { 2 } else { 8 };

/// Requests without an anchor after which each is looked up, and one in so many can be found: a short round may have none.
const GAP: usize = if cfg!(test) { 4 } else { 32 };

/// Rounds that have to come as they came before, at most, until requests are placed as before: one at first, and twice as many each time that
/// this was of no use.
const MOST_ROUNDS: usize = 16;

/// Where a request was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// At an address of the home segment.
    Home(u64),
    /// At an offset of a view, which is the one of this serial number.
    View { view: u32, serial: u32, offset: u64 },
}

/// A request of a sequence.
#[derive(Clone, Copy, Debug)]
struct Entry {
    size: u64,
    /// What the request came after: digests of its size and those before it.
    context: u64,
    placement: Placement,
}

/// The last requests of one stream: a ring, once there is no more room.
#[derive(Debug, Default)]
struct Sequence {
    ring: Vec<Entry>,
    /// Where the next one goes.
    end: usize,
    /// The next request if things go on as before.
    expected: Option<usize>,
    /// Requests in a row that were the expected ones.
    run: usize,
    /// Whether these go back nearly to where the expected ones begin: a whole round came as it came before.
    in_round: bool,
    /// Whether a quarter of another one did, too.
    well_in: bool,
    /// Whether so many did that what was of no use before says nothing any more.
    settled: bool,
    /// Whether the next request was looked for and is not served yet.
    asked: bool,
    context: u64,
    /// Requests since the last anchor.
    since: usize,
    /// The last request with a context that can be found, by a digest of that, counted from 1. Others may have the same digest.
    known: Vec<u32>,
}

/// All that is remembered of a heap.
#[derive(Debug)]
pub(super) struct Layouts {
    /// By stream.
    sequences: Vec<Sequence>,
    /// Requests in all of them.
    held: usize,
    /// Requests until remembering ends, and how many times longer it goes on than at first.
    left: u64,
    times: u64,
    /// Rounds that have to come as before until a request is placed so.
    rounds: usize,
}

fn digest(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

fn is_anchor(context: u64) -> bool {
    (digest(context) >> 24) & (ANCHORS - 1) == 0
}

fn extended(context: u64, size: u64) -> u64 {
    (context << DIGEST) | (digest(size) & ((1 << DIGEST) - 1))
}

impl Sequence {
    /// Where a request went before: as the one that followed on what was found last, or else on the same requests as now.
    fn find(&mut self, size: u64, rounds: usize) -> Option<Placement> {
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
        let ago = match at < self.end {
            true => self.end - at,
            false => self.end + self.ring.len() - at,
        };
        self.in_round = self.run + ago / 32 + CONTEXT >= (ago * rounds).max(RUN);
        self.well_in = self.in_round && self.run >= ago * rounds + ago / 4;
        self.settled = self.run >= 2 * MOST_ROUNDS * ago.max(RUN);
        Some(self.ring.get(at)?.placement)
    }

    fn end_round(&mut self) {
        (self.run, self.in_round, self.well_in, self.settled) = (0, false, false, false);
    }

    fn same_context(&self, size: u64) -> Option<usize> {
        let context = extended(self.context, size);
        if !is_anchor(context) && self.since < GAP {
            return None;
        }
        let at = (*self.known.get(self.slot(context))? as usize).checked_sub(1)?;
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

    fn slot(&self, context: u64) -> usize {
        digest(context) as usize & self.known.len().wrapping_sub(1)
    }

    /// Adds a request, in the place of the oldest if it must not grow. Whether it grew.
    fn push(&mut self, size: u64, placement: Placement, may_grow: bool) -> bool {
        self.context = extended(self.context, size);
        let entry = Entry {
            size,
            context: self.context,
            placement,
        };
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
        self.note(self.end);
        self.end += 1;
        grows
    }

    /// Makes a request known by its context, if it can be found.
    fn note(&mut self, at: usize) {
        let few = self.ring.len() / ANCHORS as usize + 1;
        if self.known.len() < 2 * few {
            self.known = vec![0; (4 * few).next_power_of_two()];
            self.since = 0;
            (0..at).for_each(|at| self.enter(at));
        }
        self.enter(at);
    }

    #[inline(always)]
    fn enter(&mut self, at: usize) {
        let context = self.ring[at].context;
        self.since = if is_anchor(context) { 0 } else { self.since + 1 };
        if self.since.is_multiple_of(GAP) {
            let slot = self.slot(context);
            self.known[slot] = at as u32 + 1;
        }
    }
}

impl Layouts {
    /// Nothing. Where memory is `stitched` a program begins with remembering, so that what is remembered of its first round is all of it.
    pub(super) fn new(stitched: bool) -> Layouts {
        Layouts {
            sequences: Vec::new(),
            held: 0,
            left: if stitched { FIRST } else { 0 },
            times: 1,
            rounds: 1,
        }
    }

    /// Whether where requests of this size go is remembered.
    #[inline(always)]
    pub(super) fn remembers(&self, size: u64) -> bool {
        (self.left > 0) & (size > SMALL_MAX)
    }

    /// Whether the program seems to do what it did before.
    #[cfg(test)]
    pub(super) fn repeats(&self) -> bool {
        self.left > 0 && self.sequences.iter().any(|sequence| sequence.run >= RUN)
    }

    /// Chunks were mapped once more, so that a request fits.
    pub(super) fn mapped(&mut self, chunks: usize) {
        self.left += chunks as u64 * WORTH * self.times;
    }

    /// Memory was taken for a large request. Where things are as they were before, there is none to take: then they are not, and what is
    /// done by memory and what by best fit are in each other's way. Another round by best fit, and again.
    pub(super) fn grew(&mut self) {
        if self.sequences.iter().any(|sequence| sequence.well_in) {
            self.sequences.iter_mut().for_each(Sequence::end_round);
            self.rounds = (self.rounds * 2).min(MOST_ROUNDS);
        }
    }

    /// Where a request is to go, if a whole round came as it came before: a request that is placed by memory between others that
    /// are not is in their way. So the first round that repeats another is still placed by best fit.
    pub(super) fn expect(&mut self, stream: u16, size: u64) -> Option<Placement> {
        let may_repeat = self.may_repeat(stream);
        let sequence = self.sequences.get_mut(usize::from(stream))?;
        let placement = sequence.find(size, self.rounds)?;
        if sequence.settled {
            self.rounds = 1;
        }
        debug_assert!(may_repeat || !sequence.in_round);
        sequence.in_round.then_some(placement)
    }

    /// Whether the next request of a stream may have a place where it [is to go](Layouts::expect): no round is shorter than [`RUN`].
    #[inline(always)]
    pub(super) fn may_repeat(&self, stream: u16) -> bool {
        // As in `Sequence::find`, where `ago` cannot be more than what came as before and a 31st of it.
        let come = |sequence: &Sequence| sequence.run.max(CONTEXT) + 1 + CONTEXT;
        let sequence = self.sequences.get(usize::from(stream));
        sequence.is_some_and(|sequence| come(sequence) * 32 >= RUN * 31)
    }

    /// A stream's next request was [looked for](Layouts::expect), but is not served yet.
    pub(super) fn was_asked(&mut self, stream: u16) {
        if let Some(sequence) = self.sequences.get_mut(usize::from(stream)) {
            sequence.asked = true;
        }
    }

    /// Whether that is so. To be asked once.
    pub(super) fn take_asked(&mut self, stream: u16) -> bool {
        let sequence = self.sequences.get_mut(usize::from(stream));
        sequence.is_some_and(|sequence| std::mem::take(&mut sequence.asked))
    }

    /// Forgets the requests of a stream that has ended.
    pub(super) fn forget(&mut self, stream: u16) {
        if let Some(sequence) = self.sequences.get_mut(usize::from(stream)) {
            self.held -= sequence.ring.len();
            *sequence = Sequence::default();
        }
    }

    /// Notes where a request went.
    pub(super) fn note(&mut self, stream: u16, size: u64, placement: Placement) {
        let stream = usize::from(stream);
        if self.sequences.len() <= stream {
            self.sequences.resize_with(stream + 1, Sequence::default);
        }
        self.held += usize::from(self.sequences[stream].push(size, placement, self.held < MOST));
        self.left -= 1;
        if self.left == 0 {
            self.times = (self.times * 2).min(MOST_TIMES);
            for sequence in &mut self.sequences {
                sequence.end_round();
                sequence.expected = None;
            }
        }
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
