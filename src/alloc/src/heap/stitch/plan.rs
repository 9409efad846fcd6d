//! What a stitched block is made of.
//!
//! Every chunk that has to be mapped costs the same, whatever its size. So a block that is stitched begins, if it can, with what lies free
//! at the end of a view, and only what is missing then is mapped behind it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use crate::free::{FreeIndex, Key};
use crate::heap::Heap;
use crate::heap::allocate::Request;
use crate::heap::segment::Segment;
use crate::heap::stitch::cover::{chunks_back_over, chunks_over};
use crate::heap::stitch::runs::{Look, Run};
use crate::heap::stitch::view::Piece;
use crate::size::{Class, MAPPING, SMALL_MAX};

/// A free block and the borders of chunks in it.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    addr: u64,
    end: u64,
    /// The first and the last border of a chunk in it.
    first: u64,
    last: u64,
    /// Whole chunks, between these.
    chunks: u64,
}

impl Candidate {
    /// Bytes it has as the beginning of a stitched block, in its middle, and as its end.
    fn head(&self) -> u64 {
        self.last - self.addr
    }

    /// Those of a beginning for each chunk that is mapped for it: the whole ones, and the one before them.
    fn head_by_chunk(&self) -> u64 {
        self.head() / (self.chunks + 1)
    }

    /// Those before its first whole chunk, which it has as a beginning only.
    fn lead(&self) -> u64 {
        self.first - self.addr
    }

    fn middle(&self) -> u64 {
        self.last - self.first
    }

    fn tail(&self) -> u64 {
        #[cfg(test)]
        tests::LOOKS.with(|looks| looks.set(looks.get() + 1));
        self.end - self.first
    }

    /// What is left of it without its whole chunks.
    fn ends(&self) -> [Candidate; 2] {
        let (first, last) = (self.first, self.last);
        let chunks = 0;
        [
            Candidate {
                end: first,
                last: first,
                chunks,
                ..*self
            },
            Candidate {
                addr: last,
                first: last,
                chunks,
                ..*self
            },
        ]
    }

    /// What its middle goes by among others: the size of its chunks, to a power of two, and how short it is. Of no whole chunk there is none.
    fn order(&self) -> (Option<u32>, Reverse<u64>) {
        #[cfg(test)]
        tests::LOOKS.with(|looks| looks.set(looks.get() + 1));
        let chunk = self.middle().checked_div(self.chunks).and_then(u64::checked_ilog2);
        (chunk, Reverse(self.middle()))
    }

    /// As one of [`Rows`], if it has whole chunks.
    fn is_row_at(&self, at: usize) -> Option<Row> {
        (self.chunks > 0).then(|| (self.order(), at, self.addr))
    }
}

/// Candidates that have whole chunks, the one to be taken next first: by their order, of equal ones the last. Each with its place among all
/// and its address; an entry is none any more where another one has that place.
struct Rows(BinaryHeap<Row>);

type Row = ((Option<u32>, Reverse<u64>), usize, u64);

impl Rows {
    fn of(candidates: &[Candidate]) -> Rows {
        let rows = candidates.iter().enumerate();
        Rows(rows.filter_map(|(at, row)| row.is_row_at(at)).collect())
    }

    fn take_next(&mut self, candidates: &mut Vec<Candidate>) -> Option<Candidate> {
        loop {
            let (_, at, addr) = self.0.pop()?;
            if candidates.get(at).is_some_and(|row| row.addr == addr) {
                let next = candidates.swap_remove(at);
                self.0.extend(candidates.get(at).and_then(|moved| moved.is_row_at(at)));
                return Some(next);
            }
        }
    }
}

/// A stitched block to be.
#[derive(Debug, Default)]
pub(in crate::heap) struct Plan {
    /// The end of a view that it begins with, if it does, and the pieces there.
    pub(in crate::heap) onto: Option<Run>,
    pub(in crate::heap) before: Vec<Piece>,
    /// What is to be mapped.
    pub(in crate::heap) pieces: Vec<Piece>,
    /// Bytes of new memory, behind the pieces.
    pub(in crate::heap) missing: u64,
    /// Chunks of the pieces, and their bytes.
    chunks: usize,
    bytes: u64,
}

impl Plan {
    fn add(&mut self, addr: u64, size: u64) {
        self.missing -= size;
        self.pieces.push(Piece { addr, size });
    }

    /// Adds whole chunks, the largest first and of rows of about as large ones the shortest, and in the end the beginning of one. It is
    /// chunks that cost, not rows; and a long row is what a request can have that is not stitched.
    ///
    /// A request may be of ten thousand rows, of more yet: not all are looked at for each.
    fn fill(&mut self, mut candidates: Vec<Candidate>) {
        let (mut longest, mut rows) = (u64::MAX, None);
        while self.missing > 0 {
            // A row is no shorter than half of what it has as an end: what is missing falls by a third at least from one look to the next.
            if self.missing <= longest {
                let fits = candidates.iter().filter(|c| c.tail() >= self.missing);
                if let Some(end) = fits.min_by_key(|c| (c.tail(), c.addr)) {
                    self.add(end.first, self.missing);
                    break;
                }
                longest = candidates.iter().map(Candidate::tail).max().unwrap_or(0);
            }
            let rows = rows.get_or_insert_with(|| Rows::of(&candidates));
            match rows.take_next(&mut candidates) {
                Some(next) => self.add(next.first, next.middle()),
                None => break,
            }
        }
    }

    /// What it costs, in bytes of memory, where a mapping is worth so many.
    fn cost(&self, mapping: u64) -> u64 {
        self.missing + self.chunks as u64 * mapping
    }
}

impl Heap {
    /// The home segment's free blocks that a stream may have: its own, and nobody's.
    pub(in crate::heap) fn free_at_home(&self, stream: u16) -> [&FreeIndex; 2] {
        let lines = [stream, self.streams.line(stream).any];
        lines.map(|stream| &self.streams.line(stream).free[Class::Chunked as usize])
    }

    /// The pieces of few of the free blocks that make the request, if that takes no new memory.
    pub(in crate::heap) fn plan_of_few(&mut self, request: &Request, left: u64) -> Option<Plan> {
        self.plan(request, left, Look::Few).filter(|plan| plan.missing == 0)
    }

    /// The pieces that make the request with the least new memory and mapping, of which there are `left` bytes to be had.
    pub(in crate::heap) fn plan(&mut self, request: &Request, left: u64, look: Look) -> Option<Plan> {
        if request.class != Class::Chunked || request.size <= SMALL_MAX {
            return None;
        }
        let tail = self.longest_tail((request.size, look), request.stream);
        let home = self.segments.get(self.home?)?;
        let mapping = self.ledger.requested_peak(request.requested) / MAPPING;
        let onto = tail.and_then(|tail| self.plan_onto(home, tail, request, look));
        let new = |plan: &Plan| plan.missing.next_multiple_of(self.sizes.granularity);
        let candidates = || self.candidates(home, (request, look), &HashSet::new());
        let anew = plan_anew(candidates(), request.size, Candidate::head_by_chunk);
        // To begin with what serves as a beginning only leaves the least to be taken from the driver. As a rule it is no better: of small
        // pieces the next requests have less.
        let least = match anew.as_ref().is_some_and(|plan| new(plan) > left) {
            true => plan_anew(candidates(), request.size, Candidate::lead),
            false => None,
        };
        let mut plans: Vec<Plan> = [anew, least, onto].into_iter().flatten().collect();
        for plan in &mut plans {
            let over = |piece: &Piece| chunks_over(home, piece.addr, piece.addr + piece.size);
            let chunks = plan.pieces.iter().flat_map(over).map(|(_, size)| size);
            (plan.chunks, plan.bytes) = chunks.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size));
        }
        plans.retain(|plan| plan.onto.is_none_or(|run| plan.bytes + new(plan) <= run.room));
        plans
            .into_iter()
            .min_by_key(|plan| (new(plan) > left, plan.cost(mapping)))
    }

    /// Bytes of new memory that the request takes where these parts of the home segment are free: where they begin, and their bytes. After a
    /// release their whole chunks are not there any more.
    pub(in crate::heap) fn missing_beside(
        &self,
        request: &Request,
        parts: &[(u64, u64)],
        released: bool,
    ) -> Option<u64> {
        if request.class != Class::Chunked || request.size <= SMALL_MAX {
            return None;
        }
        let home = self.segments.get(self.home?)?;
        let candidates = || {
            let parts = parts.iter();
            let whole = parts.filter_map(|(addr, size)| candidate(home, *addr, addr + size));
            match released {
                true => whole.flat_map(|whole| whole.ends()).collect(),
                false => whole.collect(),
            }
        };
        let measures: [fn(&Candidate) -> u64; 2] = [Candidate::head_by_chunk, Candidate::lead];
        let plans = measures.map(|measure| plan_anew(candidates(), request.size, measure));
        let missing = plans.into_iter().flatten().map(|plan| plan.missing);
        Some(missing.min()?.next_multiple_of(self.sizes.granularity))
    }

    /// One that begins with the end of a view. A view has a chunk once only.
    fn plan_onto(&self, home: &Segment, tail: Run, request: &Request, look: Look) -> Option<Plan> {
        let taken = self.views.chunks_of(tail.view);
        let mut plan = Plan {
            onto: Some(tail),
            before: self.views.pieces(tail.view, tail.offset, tail.bytes),
            missing: request.size.checked_sub(tail.bytes)?,
            ..Plan::default()
        };
        plan.fill(self.candidates(home, (request, look), &taken));
        Some(plan)
    }

    /// The free blocks that a stream may have and that reach a border of a chunk, without the chunks that are taken.
    fn candidates(&self, home: &Segment, (request, look): (&Request, Look), taken: &HashSet<u64>) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let mut offer = |addr: u64, end: u64| candidates.extend(candidate(home, addr, end));
        for index in self.free_at_home(request.stream) {
            let mut keys = Vec::new();
            self.each_at_border(home, index, (request.size, look), |key| keys.push(key));
            // Of those that are as good as each other one is taken by its place among them.
            keys.sort_unstable();
            for Key { addr, size, .. } in keys {
                let (mut from, end) = (addr, addr + size);
                if !taken.is_empty() {
                    for (at, size) in chunks_over(home, addr, end).filter(|(at, _)| taken.contains(at)) {
                        offer(from, at.max(from));
                        from = end.min(at + size);
                    }
                }
                offer(from, end);
            }
        }
        candidates
    }
}

/// A free block that reaches a border of a chunk.
fn candidate(home: &Segment, addr: u64, end: u64) -> Option<Candidate> {
    let (first, last, chunks) = borders(home, addr, end)?;
    (addr < end && first <= last).then_some(Candidate {
        addr,
        end,
        first,
        last,
        chunks,
    })
}

/// A plan that begins with the end of a free block: of the one that is the most by some measure.
fn plan_anew(mut candidates: Vec<Candidate>, size: u64, measure: impl Fn(&Candidate) -> u64) -> Option<Plan> {
    let mut plan = Plan {
        missing: size,
        ..Plan::default()
    };
    let first = (0..candidates.len()).max_by_key(|i| measure(&candidates[*i]))?;
    let first = candidates.swap_remove(first);
    if first.head() > 0 {
        // A free block that would be enough was found before this, but for one that has come free since.
        plan.add(first.addr, first.head().min(plan.missing));
    }
    plan.fill(candidates);
    (!plan.pieces.is_empty()).then_some(plan)
}

/// The first border of a chunk from an address on, the last one until another, and the chunks between them.
fn borders(home: &Segment, addr: u64, end: u64) -> Option<(u64, u64, u64)> {
    let mut over = chunks_back_over(home, addr, end).peekable();
    let (at, size) = *over.peek()?;
    let last = if at + size == end { end } else { at };
    let mut chunks = 0;
    over.find_map(|(at, size)| {
        chunks += u64::from(at < last && at >= addr);
        (at <= addr).then_some((if at == addr { addr } else { at + size }, last, chunks))
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
