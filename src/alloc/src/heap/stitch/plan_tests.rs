//! Which pieces a plan takes: against a look at all of them for each.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::config::Config;
use crate::device::{Call, Sim, SimConfig};
use crate::heap::tests::heap_on;
use crate::stream::Stream;
use crate::tag::Tag;

thread_local! {
    /// How often a candidate was looked at.
    pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
}

/// A free block of so many chunks of a size.
fn row(addr: u64, chunks: u64, size: u64) -> Candidate {
    let end = addr + chunks * size;
    Candidate {
        addr,
        end,
        first: addr,
        last: end,
        chunks,
    }
}

fn plan_of(missing: u64) -> Plan {
    Plan {
        missing,
        ..Plan::default()
    }
}

#[test]
fn the_largest_chunks_come_first_and_of_rows_of_these_the_shortest() {
    let mut plan = plan_of(60);
    // Of 5 bytes are as good as of 7: what that saves is less than a long row.
    plan.fill(vec![row(100, 8, 2), row(200, 4, 5), row(300, 2, 7), row(400, 1, 1)]);
    let pieces: Vec<(u64, u64)> = plan.pieces.iter().map(|piece| (piece.addr, piece.size)).collect();
    assert_eq!(pieces, [(300, 14), (200, 20), (100, 16), (400, 1)]);
    assert_eq!(plan.missing, 9);
    plan.pieces.clear();
    plan.fill(vec![row(100, 8, 2), row(200, 4, 5), row(300, 9, 1)]);
    assert_eq!(
        plan.pieces,
        [Piece { addr: 300, size: 9 }],
        "the end goes where it fits best"
    );
}

/// The same by a look at all that are left for each piece.
fn fill_slowly(plan: &mut Plan, mut candidates: Vec<Candidate>) {
    while plan.missing > 0 {
        let fits = candidates.iter().filter(|c| c.tail() >= plan.missing);
        if let Some(end) = fits.min_by_key(|c| (c.tail(), c.addr)) {
            plan.add(end.first, plan.missing);
            break;
        }
        let rows = (0..candidates.len()).filter(|i| candidates[*i].chunks > 0);
        match rows.max_by_key(|i| candidates[*i].order()) {
            Some(next) => {
                let next = candidates.swap_remove(next);
                plan.add(next.first, next.middle());
            }
            None => break,
        }
    }
}

/// A cache of pages in a full device: a large request is of most of them.
#[test]
fn a_request_of_ten_thousand_pieces_does_not_look_at_all_for_each() {
    let pages: Vec<Candidate> = (0..20_000).map(|at| row(2 * at, 1, 1)).collect();
    let mut plan = plan_of(10_000);
    LOOKS.set(0);
    plan.fill(pages);
    assert_eq!((plan.pieces.len(), plan.missing), (10_000, 0));
    assert!(LOOKS.get() < 200_000, "{} looks", LOOKS.get());
}

/// A cache of pages that are chunks.
#[test]
fn of_very_many_free_pages_only_some_are_looked_at_if_these_are_enough() {
    const MIB: u64 = 1 << 20;
    let sim = Sim::new(SimConfig::default());
    let config = Config {
        max_chunk: 2 * MIB,
        ..Config::default()
    };
    let mut heap = heap_on(&sim, config);
    let allocate = |heap: &mut Heap, bytes| heap.allocate(bytes, Stream(1), Tag(0)).unwrap().block;
    let held: Vec<u32> = (0..10_000).map(|_| allocate(&mut heap, 2 * MIB)).collect();
    let rest = heap.count_free().largest;
    allocate(&mut heap, rest);
    held.iter().step_by(2).for_each(|b| heap.free(*b));
    heap.drain_all();
    let request = Request {
        stream: heap.streams.known(Stream(1)).unwrap(),
        ..Heap::nobodys(3 * MIB, 3 * MIB)
    };
    let looks = |heap: &mut Heap, left: u64| {
        LOOKS.set(0);
        heap.plan_of_few(&request, left).unwrap();
        LOOKS.get()
    };
    assert!(heap.has_very_many_free(&request));
    assert!(looks(&mut heap, u64::MAX) < 3000, "{} looks", LOOKS.get());
    let (reserved, maps) = (sim.live().bytes, sim.calls(Call::Map));
    let plan = heap.plan_of_few(&request, 0).unwrap();
    heap.stitch(plan, &request).unwrap().unwrap();
    assert_eq!((sim.live().bytes, sim.calls(Call::Map)), (reserved, maps + 2));
    heap.check();
    // More than the others together have of whole chunks.
    let request = Request {
        stream: request.stream,
        ..Heap::nobodys(20_000 * MIB, 20_000 * MIB)
    };
    assert!(!heap.has_very_many_free(&request), "all are looked at for it as it is");
    let before = sim.live().bytes;
    assert!(heap.plan_of_few(&request, u64::MAX).is_none());
    assert_eq!((LOOKS.get() > 5000, sim.live().bytes), (true, before));
}

proptest! {
    #[test]
    fn the_same_pieces_as_by_a_look_at_all(
        blocks in prop::collection::vec((0u64..4, 1u64..5, 0u64..4, 0u64..4), 0..40),
        missing in 0u64..200,
    ) {
        let mut addr = 0;
        let mut candidates = Vec::new();
        for (chunks, size, before, behind) in blocks {
            let first = addr + before.min(size - 1);
            let last = first + chunks * size;
            let end = last + behind.min(size - 1);
            if addr < end {
                candidates.push(Candidate { addr, end, first, last, chunks });
            }
            addr = end + 1;
        }
        let (mut quick, mut slow) = (plan_of(missing), plan_of(missing));
        quick.fill(candidates.clone());
        fill_slowly(&mut slow, candidates);
        prop_assert_eq!((quick.pieces, quick.missing), (slow.pieces, slow.missing));
    }
}
