//! Lines of streams are found where they are; and how many of them, and of segments, an operation looks at.
#![allow(clippy::unwrap_used)]

use crate::config::Config;
use crate::device::{Sim, SimConfig};
use crate::error::Error;
use crate::heap::tests::heap_on;
use crate::heap::*;
use crate::pool::PoolConfig;
use crate::stream::Stream;
use crate::tag::Tag;

impl Heap {
    /// Panics unless every line is found, and nothing else is.
    pub(super) fn check_lines(&self) {
        let streams = &self.streams;
        for at in streams.indices() {
            let line = streams.line(at);
            let real = streams.is_real(at);
            assert_eq!(streams.of(line.arena).any(|other| other == at), real);
            assert_eq!(streams.all_retired().contains(&at), line.is_retired());
            if real {
                let known = streams.known_in(line.arena, streams.name(at));
                assert_eq!(known == Some(at), !line.is_retired());
            }
            assert_eq!(streams.draining().contains(&at), line.may_have_aside());
            assert!(line.waiting.is_empty() || streams.has_awaited(at));
        }
        assert!(streams.draining().is_sorted() && streams.all_retired().is_sorted());
    }
}

/// A heap with so many pools that were used on two streams, and that nobody uses now.
fn with_idle_pools(count: usize) -> Heap {
    let mut heap = heap_on(&Sim::new(SimConfig::default()), Config::default());
    for n in 0..count {
        let pool = NewPool::Named(&format!("tenant {n}"));
        let arena = heap.add_arena(pool, PoolConfig::default()).unwrap();
        for stream in 1..=2 {
            let grant = heap.allocate_in(arena, 4096, Stream(stream), Tag(0)).unwrap();
            heap.free(grant.block);
        }
    }
    heap
}

/// How many lines are looked at while something is done in a heap.
fn looks(heap: &mut Heap, work: impl FnOnce(&mut Heap)) -> usize {
    heap.streams.looks.set(0);
    work(heap);
    let looks = heap.streams.looks.get();
    heap.check();
    looks
}

/// The same beside one idle pool and beside a hundred, but for what their memory makes of requests: it counts as reserved.
fn costs_the_same(work: impl Fn(&mut Heap)) {
    let [few, many] = [1, 100].map(|pools| {
        let mut heap = with_idle_pools(pools);
        work(&mut heap);
        looks(&mut heap, &work)
    });
    assert!(few > 0 && many < 2 * few, "{few} and {many} lines");
}

fn pair(heap: &mut Heap, bytes: u64, stream: u64) {
    let grant = heap.allocate(bytes, Stream(stream), Tag(0)).unwrap();
    heap.free(grant.block);
}

#[test]
fn requests_of_other_sizes_on_streams_in_turn_look_at_no_idle_pool() {
    costs_the_same(|heap| {
        for n in 1..=100 {
            pair(heap, n * 300_000, 1 + n % 2);
        }
    });
}

#[test]
fn a_block_that_waits_for_another_stream_looks_at_no_idle_pool() {
    costs_the_same(|heap| {
        let grant = heap.allocate(4096, Stream(1), Tag(0)).unwrap();
        heap.record_use(grant.block, Stream(2), Default::default()).unwrap();
        heap.free(grant.block);
        assert_eq!(heap.streams.pending, 0);
    });
}

#[test]
fn a_request_of_a_pool_looks_at_none_of_another_pool() {
    costs_the_same(|heap| {
        for n in 1..=10 {
            let grant = heap.allocate_in(1, n * (3 << 20), Stream(1 + n % 2), Tag(0)).unwrap();
            heap.free(grant.block);
        }
    });
}

#[test]
fn what_comes_back_from_lanes_comes_from_those_that_have_some() {
    let mut heap = with_idle_pools(1);
    for stream in 1..=200 {
        pair(&mut heap, 30 << 20, stream);
    }
    heap.drain_all();
    let looks = looks(&mut heap, Heap::drain_all);
    assert!(looks < 200, "{looks} lines");
}

/// How often all segments are looked at for a request that is refused although it matters more than so many pools, which hold all they have.
fn looks_at_segments(pools: u64) -> usize {
    const MIB: u64 = 1 << 20;
    let mut heap = with_idle_pools(0);
    let of_priority = |priority| PoolConfig {
        priority,
        ..PoolConfig::default()
    };
    heap.set_budget(Some((pools * 20 + 30) * MIB)).unwrap();
    for n in 0..pools {
        let pool = NewPool::Named(&format!("tenant {n}"));
        let arena = heap.add_arena(pool, of_priority(-1)).unwrap();
        heap.allocate_in(arena, 20 * MIB, Stream(1), Tag(0)).unwrap();
    }
    let first = heap.add_arena(NewPool::Named("first"), of_priority(5)).unwrap();
    heap.segments.looks.set(0);
    let refused = heap.allocate_in(first, 40 * MIB, Stream(1), Tag(0));
    let looks = heap.segments.looks.get();
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    heap.check();
    looks
}

#[test]
fn a_refused_request_does_not_look_at_all_segments_for_each_pool() {
    let looks = looks_at_segments(2);
    assert!(looks > 0);
    assert_eq!(looks_at_segments(100), looks);
}

/// How many lines are looked at for a request of more than a few holes together, where so many are its stream's and as many nobody's, all
/// of them between blocks that another stream holds.
fn looks_at_holes(count: usize) -> usize {
    const HOLE: u64 = 1536 << 10;
    let mut heap = with_idle_pools(0);
    let blocks: Vec<u32> = (0..4 * count)
        .map(|n| heap.allocate(HOLE, Stream(1 + n as u64 % 2), Tag(0)).unwrap().block)
        .collect();
    let leave = |heap: &mut Heap, first: usize| {
        let holes = blocks.iter().skip(first).step_by(4);
        holes.for_each(|b| heap.free(*b));
        heap.drain_all();
    };
    leave(&mut heap, 0);
    heap.wait_for_device().unwrap();
    leave(&mut heap, 2);
    looks(&mut heap, |heap| {
        heap.allocate(20 * HOLE, Stream(1), Tag(0)).unwrap();
    })
}

#[test]
fn a_request_of_more_than_a_few_holes_looks_at_none_of_them() {
    let [few, many] = [20, 200].map(looks_at_holes);
    assert!(few > 0 && many < 2 * few, "{few} and {many} lines");
}
