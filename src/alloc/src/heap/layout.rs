//! Remembered layouts: where the requests of a stream went when they came in this order before.
//!
//! A loop asks for the same sizes in the same order in every round, but best fit places them differently from round to round: it
//! begins with other free pieces than the round before. Then views that were mapped do not fit, and new ones are mapped, and so on. A
//! request that is placed as it was in the round before finds its memory free if everything before it was placed so, too; so a round
//! that repeats the one before maps nothing. That it does is known from its first request on where the program holds just what it held as
//! another one began, else once a whole round came as the one before.
//!
//! Only large requests of stitched memory are remembered, and only while mapping costs more than remembering does: the quick ways past
//! the heap are closed to them meanwhile. Then what a program repeats is forgotten, on trial: best fit may do as well by then. Where it does
//! not, mapping begins again, and what that program repeats is remembered from then on as long as it does.

mod beginning;
pub(super) mod recall;
mod sequence;

use crate::size::SMALL_MAX;
use beginning::Beginnings;
pub(super) use beginning::Moment;
use sequence::{CONTEXT, MOST_ROUNDS, RUN, Sequence};

/// Requests that are remembered, of all streams together.
const MOST: usize = if cfg!(test) { 4096 } else { 1 << 17 };

/// Requests for which a program goes on remembering when one chunk was mapped once more. Each may cost 0.1 µs more meanwhile, and mapping
/// a chunk costs some 35 µs: remembering in vain costs a fifth of the mapping.
const WORTH: u64 = 64;

/// What is not in vain may cost as much as mapping does, some 15 ns a request: to forget it wrongly has what the program repeats mapped again.
/// A request that goes where it went before counts so much less than one that does not.
const IN_VAIN: u64 = 30;

/// Requests that are remembered before anything is mapped once more.
const FIRST: u64 = 512;

/// Rounds that it goes on for when forgetting what a program repeats had it map again: enough to know them again.
const ROUNDS: u64 = 4;

/// Streams, the first ones, of which is known where they were when a round began.
const STREAMS: usize = 32;

/// It goes on for so many times longer at most, doubled each time that mapping begins again after it ended: a round may be long.
const MOST_TIMES: u64 = 1 << 10;

/// Requests in a row of which none went where it went before, after which nothing else goes by that it is remembered: what repeats begins
/// anew much sooner.
const LONG: u64 = 4096;

/// Requests in a row of which none went where it went before, after which it ends and goes on no longer than at first, unless a round has
/// begun to come again: none is longer that could be remembered.
const HOPELESS: u64 = MOST as u64;

/// Where a request was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// At an address of the home segment.
    Home(u64),
    /// At an offset of a view, which is the one of this serial number.
    View { view: u32, serial: u32, offset: u64 },
}

/// All that is remembered of a heap.
#[derive(Debug)]
pub(super) struct Layouts {
    /// By stream.
    sequences: Vec<Sequence>,
    /// Requests in all of them.
    held: usize,
    /// Requests until remembering ends, [in vain](IN_VAIN), and how many times longer it goes on than at first.
    left: u64,
    times: u64,
    /// Requests in a row that did not go where they went before.
    vain: u64,
    /// Whether the program repeated itself when that was forgotten, and whether it ever had to map again for that: then what it repeats
    /// is not forgotten any more.
    repeated: bool,
    lasts: bool,
    /// Rounds that have to come as before until a request is placed so.
    rounds: usize,
    /// Where rounds began.
    beginnings: Beginnings,
}

impl Layouts {
    /// Nothing. Where memory is `stitched` a program begins with remembering, so that what is remembered of its first round is all of it.
    pub(super) fn new(stitched: bool) -> Layouts {
        Layouts {
            sequences: Vec::new(),
            held: 0,
            left: if stitched { FIRST * IN_VAIN } else { 0 },
            times: 1,
            vain: 0,
            repeated: false,
            lasts: false,
            rounds: 1,
            beginnings: Beginnings::default(),
        }
    }

    /// Whether where large requests go is remembered.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.left > 0
    }

    /// Whether where large requests go is remembered, and was not in vain for long.
    #[inline(always)]
    pub(super) fn may_be_of_use(&self) -> bool {
        self.is_on() && self.vain < LONG
    }

    /// Whether where requests of this size go is remembered.
    #[inline(always)]
    pub(super) fn remembers(&self, size: u64) -> bool {
        self.is_on() & (size > SMALL_MAX)
    }

    /// Whether the program seems to do what it did before.
    #[cfg(test)]
    pub(super) fn repeats(&self) -> bool {
        self.left > 0 && self.sequences.iter().any(|sequence| sequence.run >= RUN)
    }

    /// Whether the program has done what it did before for some rounds.
    pub(super) fn repeats_for_long(&self) -> bool {
        self.left > 0 && self.sequences.iter().any(|sequence| sequence.settled)
    }

    /// Chunks were mapped once more, so that a request fits.
    pub(super) fn mapped(&mut self, chunks: usize) {
        if self.left == 0 && self.repeated {
            self.lasts = true;
            self.left = ROUNDS * self.held as u64 * IN_VAIN;
        }
        if self.is_hopeless() {
            (self.left, self.times) = (0, 1);
        }
        self.left += chunks as u64 * WORTH * self.times * IN_VAIN;
    }

    /// Memory was taken for a large request. Where things are as they were before, there is none to take: then they are not, and what is
    /// done by memory and what by best fit are in each other's way. Another round by best fit, and again.
    pub(super) fn grew(&mut self) {
        if self.sequences.iter().any(|sequence| sequence.well_in) {
            self.sequences.iter_mut().for_each(Sequence::end_round);
            self.rounds = (self.rounds * 2).min(MOST_ROUNDS);
        }
    }

    /// A request that is to be remembered comes.
    #[inline(always)]
    pub(super) fn comes(&mut self, moment: Moment) {
        self.beginnings.comes(moment);
    }

    /// Whether a stream's next request may begin a round. Where what was placed by memory was in the way of other requests, only what came as
    /// before for long says that it comes again.
    #[inline(always)]
    fn may_begin(&self, stream: u16) -> bool {
        let sequence = self.sequences.get(usize::from(stream));
        (self.rounds == 1) & !sequence.is_some_and(|sequence| sequence.in_round)
    }

    /// A stream's last request could not go where it went before: what seemed to begin as it began before may not go on so.
    pub(super) fn was_taken(&mut self, stream: u16) {
        let sequence = self.sequences.get_mut(usize::from(stream));
        if let Some(sequence) = sequence
            && sequence.was_taken()
        {
            sequence.end_round();
            sequence.expected = None;
        }
    }

    /// Where a request is to go, if a whole round came as it came before: a request that is placed by memory between others that
    /// are not is in their way. So the first round that repeats another is still placed by best fit, unless its beginning is known: then all
    /// that was free at that time is free now.
    pub(super) fn expect(&mut self, stream: u16, size: u64) -> Option<Placement> {
        let may_repeat = self.may_repeat(stream);
        self.begin(stream);
        let sequence = self.sequences.get_mut(usize::from(stream))?;
        let placement = sequence.find(size, self.rounds)?;
        if sequence.settled {
            self.rounds = 1;
        }
        debug_assert!(may_repeat || !sequence.in_round);
        sequence.in_round.then_some(placement)
    }

    /// Has the sequences go on where they were when a round began that begins anew with a stream's next request.
    fn begin(&mut self, stream: u16) {
        if !self.may_begin(stream) {
            return;
        }
        let Some(ends) = self.beginnings.known() else { return };
        // Streams that came later begin with their first request.
        let ends = ends.iter().copied().chain(std::iter::repeat(0));
        for (sequence, end) in self.sequences.iter_mut().take(STREAMS).zip(ends) {
            if !sequence.in_round {
                sequence.suppose(end);
            }
        }
    }

    /// Whether the next request of a stream may have a place where it [is to go](Layouts::expect): no round is shorter than [`RUN`].
    #[inline(always)]
    pub(super) fn may_repeat(&self, stream: u16) -> bool {
        // As in `Sequence::find`, where `ago` cannot be more than what came as before and a 31st of it.
        let come = |sequence: &Sequence| sequence.run.max(CONTEXT) + 1 + CONTEXT;
        let sequence = self.sequences.get(usize::from(stream));
        sequence.is_some_and(|sequence| come(sequence) * 32 >= RUN * 31)
            || self.may_begin(stream) && self.beginnings.known().is_some()
    }

    /// A stream's next request was [looked for](Layouts::expect), but is not served yet: it may go `there`, or cannot go where it was.
    pub(super) fn was_asked(&mut self, stream: u16, size: u64, there: Option<Placement>) {
        if let Some(sequence) = self.sequences.get_mut(usize::from(stream)) {
            sequence.asked = Some((size, there));
        }
    }

    /// [`expect`](Layouts::expect), unless that was done before.
    pub(super) fn expect_once(&mut self, stream: u16, size: u64) -> Option<Placement> {
        let sequence = self.sequences.get_mut(usize::from(stream));
        match sequence.and_then(|sequence| sequence.asked.take()) {
            // Another thread's request may have come in between.
            Some((asked, there)) => there.filter(|_| asked == size),
            None => self.expect(stream, size),
        }
    }

    /// Forgets the requests of a stream that has ended.
    pub(super) fn forget(&mut self, stream: u16) {
        if let Some(sequence) = self.sequences.get_mut(usize::from(stream)) {
            self.held -= sequence.held();
            *sequence = Sequence::default();
        }
    }

    /// Notes where a request went.
    pub(super) fn note(&mut self, stream: u16, size: u64, placement: Placement) {
        let stream = usize::from(stream);
        if self.sequences.len() <= stream {
            self.sequences.resize_with(stream + 1, Sequence::default);
        }
        let ends = self.sequences.iter().take(STREAMS).map(Sequence::end);
        self.beginnings.note(self.sequences[stream].in_round, ends);
        let sequence = &mut self.sequences[stream];
        self.held += usize::from(sequence.push(size, placement, self.held < MOST));
        let counts = if sequence.in_round { 1 } else { IN_VAIN };
        self.vain = if sequence.in_round { 0 } else { self.vain + 1 };
        self.left = self.left.saturating_sub(counts);
        if self.left == 0 || self.vain.is_multiple_of(HOPELESS) && self.is_hopeless() {
            self.end();
        }
    }

    /// Whether nothing came again for so long that nothing will.
    fn is_hopeless(&self) -> bool {
        self.vain >= HOPELESS && self.sequences.iter().all(|sequence| sequence.run < RUN)
    }

    /// Nothing was mapped for long, or nothing came again.
    #[cold]
    #[inline(never)]
    fn end(&mut self) {
        self.left = 0;
        self.repeated = self.sequences.iter().any(|sequence| sequence.in_round);
        if self.lasts && self.repeated {
            self.left = FIRST * IN_VAIN;
            return;
        }
        self.times = (self.times * 2).min(MOST_TIMES);
        for sequence in &mut self.sequences {
            sequence.end_round();
            sequence.expected = None;
        }
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
