//! Where memory of small blocks serves large ones, and plans that need many pieces.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::Config;
use crate::device::{Call, Sim, SimConfig, Timeline};
use crate::heap::tests::heap_on;
use crate::heap::tests::streams::heap;
use crate::stream::Stream;
use crate::tag::Tag;

const MIB: u64 = 1 << 20;

/// What an 8 MiB request takes from the driver where so many of 64 blocks of 512 KiB were given back, and some operations for each chunk.
fn taken_beside_idle_small(given_back: usize, operations: u64) -> u64 {
    let (sim, mut heap) = heap(Timeline::Immediate);
    let allocate = |heap: &mut Heap, bytes| heap.allocate(bytes, Stream(1), Tag(0)).unwrap().block;
    let small: Vec<u32> = (0..64).map(|_| allocate(&mut heap, MIB / 2)).collect();
    for _ in 0..operations * heap.ledger.device_allocs() {
        let b = allocate(&mut heap, MIB / 2);
        heap.free(b);
    }
    small[..given_back].iter().for_each(|b| heap.free(*b));
    let before = sim.live().bytes;
    allocate(&mut heap, 8 * MIB);
    heap.check();
    sim.live().bytes - before
}

/// A plan looks at some free blocks and not at all of them, but at as many as its request needs.
#[test]
fn a_request_of_thousands_of_pieces_needs_no_new_memory() {
    let sim = Sim::new(SimConfig::default());
    let config = Config {
        max_chunk: 2 * MIB,
        ..Config::default()
    };
    let mut heap = heap_on(&sim, config);
    let allocate = |heap: &mut Heap, bytes| heap.allocate(bytes, Stream(1), Tag(0)).unwrap().block;
    let held: Vec<u32> = (0..6000)
        .map(|i| allocate(&mut heap, 2 * MIB * (1 + i / 2 % 4)))
        .collect();
    held.iter().step_by(2).for_each(|b| heap.free(*b));
    let before = sim.calls(Call::Create);
    allocate(&mut heap, 12_000 * MIB);
    assert_eq!(sim.calls(Call::Create), before, "nor was any given back for it");
    heap.check();
}

#[test]
fn a_large_request_takes_idle_memory_of_small_ones_where_mapping_it_again_would_cost_little() {
    assert_eq!(taken_beside_idle_small(60, 200), 0);
    assert_eq!(
        taken_beside_idle_small(60, 10),
        8 * MIB,
        "a loop that is placed as before"
    );
    assert_eq!(
        taken_beside_idle_small(30, 200),
        8 * MIB,
        "less than half of it is idle"
    );
}

/// A heap that holds 160 MiB in one block, and had 64 blocks of 512 KiB: those from the seventh to this one it gave back. Then so many operations
/// for each chunk.
fn idle_among_small(timeline: Timeline, to: usize, operations: u64) -> (Heap, Sim) {
    let (sim, mut heap) = heap(timeline);
    let allocate = |heap: &mut Heap, bytes| heap.allocate(bytes, Stream(1), Tag(0)).unwrap();
    allocate(&mut heap, 160 * MIB);
    let small: Vec<Grant> = (0..64).map(|_| allocate(&mut heap, MIB / 2)).collect();
    sim.enqueue(Stream(1), small[to - 1].addr, MIB / 2);
    small[6..to].iter().for_each(|grant| heap.free(grant.block));
    for _ in 0..operations * heap.ledger.device_allocs() {
        let b = allocate(&mut heap, 1000).block;
        heap.free(b);
    }
    (heap, sim)
}

#[test]
fn idle_memory_of_small_blocks_goes_back_before_too_much_is_reserved() {
    let reserved = |to, operations, bytes: &[u64]| {
        let (mut heap, sim) = idle_among_small(Timeline::Immediate, to, operations);
        for bytes in bytes {
            heap.allocate(*bytes, Stream(1), Tag(0)).unwrap();
            heap.check();
        }
        assert_eq!(sim.violations(), [""; 0]);
        sim.live().bytes / MIB
    };
    // Whole chunks, and no more than are needed.
    assert_eq!(reserved(64, 100, &[32 * MIB]), 196);
    assert_eq!(reserved(64, 100, &[32 * MIB, 6 * MIB]), 202);
    assert_eq!(reserved(28, 100, &[8 * MIB]), 192);
    assert_eq!(reserved(9, 100, &[8 * MIB]), 200, "no whole chunk of it is free");
    assert_eq!(
        reserved(28, 10, &[8 * MIB]),
        200,
        "this would take longer than the program"
    );
    assert_eq!(reserved(28, 100, &[6 * MIB]), 198, "nor is that too much");
}

#[test]
fn memory_of_small_blocks_that_queued_work_uses_or_the_driver_keeps_stays() {
    let request = |heap: &mut Heap| heap.allocate(32 * MIB, Stream(1), Tag(0)).unwrap();
    let (mut heap, sim) = idle_among_small(Timeline::Manual, 64, 100);
    request(&mut heap);
    assert_eq!(sim.live().bytes, 224 * MIB);
    sim.finish(Stream(1));
    request(&mut heap);
    assert_eq!(sim.live().bytes, 228 * MIB);
    assert_eq!(sim.violations(), [""; 0]);

    let (mut heap, sim) = idle_among_small(Timeline::Immediate, 64, 100);
    sim.fail_next(Call::Unmap, 1);
    let block = request(&mut heap).block;
    assert_eq!(sim.live().bytes, 224 * MIB);
    heap.check();
    heap.free(block);
    heap.release_cached().unwrap();
    assert_eq!(sim.live().bytes, 164 * MIB);
}

/// Large blocks among small ones, in any order, beside stitched and remembered ones, given back in any order.
#[test]
fn memory_of_small_blocks_serves_large_ones_again_and_again() {
    let mut among_small = 0;
    for seed in 1..=8u64 {
        let (sim, mut heap) = heap(Timeline::Immediate);
        let (mut held, mut state) = (Vec::new(), seed);
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for round in 0..8 {
            // Mapping is cheap to a program that does much for each chunk.
            for _ in 0..100 * heap.ledger.device_allocs() {
                let b = heap.allocate(MIB / 2, Stream(1), Tag(0)).unwrap().block;
                heap.free(b);
            }
            for _ in 0..60 {
                let bytes = match round % 2 {
                    0 => 1 + random(MIB),
                    _ => MIB + random(12 * MIB),
                };
                held.push(heap.allocate(bytes, Stream(1 + random(2)), Tag(0)).unwrap().block);
                let last = &heap.blocks[*held.last().unwrap()];
                among_small += u32::from(last.class == Class::Fine && last.size > MIB);
                if held.len() > 50 {
                    heap.free(held.swap_remove(random(50) as usize));
                }
                heap.check();
            }
        }
        held.into_iter().for_each(|b| heap.free(b));
        heap.check();
        heap.release_cached().unwrap();
        assert_eq!(sim.live().bytes, 0);
        assert_eq!(sim.violations(), [""; 0]);
    }
    assert!(among_small > 0, "no large block was there, and this test says nothing");
}

/// Small blocks that come and go beside large ones of which there are more and more, while the GPU is late and any driver call may fail: what
/// goes back is nobody's, and nothing is lost.
#[test]
fn memory_of_small_blocks_goes_back_whatever_fails() {
    let mut went_back = 0;
    for seed in 1..=6u64 {
        let (sim, mut heap) = heap(Timeline::Manual);
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut small: Vec<Grant> = Vec::new();
        let mut large: Vec<Grant> = Vec::new();
        for round in 0..6 {
            for _ in 0..50 * heap.ledger.device_allocs() {
                if let Ok(grant) = heap.allocate(1000, Stream(1), Tag(0)) {
                    heap.free(grant.block);
                }
            }
            for _ in 0..80 {
                let stream = Stream(1 + random(2));
                if random(4) == 0 {
                    sim.fail_after(random(4), false);
                }
                // More small ones in even rounds, fewer in odd ones.
                let (held, bytes) = match random(3) {
                    0 => (&mut large, (1 + random(16)) * MIB + random(MIB)),
                    _ => (&mut small, MIB / 4 + random(3 * MIB / 4)),
                };
                if bytes > MIB || round % 2 == 0 {
                    let before = heap.ledger.reserved_small();
                    if let Ok(grant) = heap.allocate(bytes, stream, Tag(0)) {
                        sim.enqueue(stream, grant.addr, bytes);
                        held.push(grant);
                    }
                    went_back += u32::from(heap.ledger.reserved_small() < before);
                } else if !held.is_empty() {
                    heap.free(held.swap_remove(random(held.len() as u64) as usize).block);
                }
                sim.clear_failure();
                if random(3) == 0 {
                    sim.finish(stream);
                }
                heap.check();
            }
        }
        small.into_iter().chain(large).for_each(|grant| heap.free(grant.block));
        heap.check();
        heap.release_cached().unwrap();
        assert_eq!(sim.live().bytes, 0);
        assert_eq!(sim.violations(), [""; 0]);
    }
    assert!(went_back > 10, "{went_back}");
}

/// A heap of a full device, or budget, whose free blocks are 1,200 of 3 MiB, each within a chunk of 64 MiB, where nothing that is stitched can have it, and
/// parts of blocks for which memory was taken at first: of so many MiB each, the negative ones are free.
fn beside_very_many_of_no_use(release_on_oom: bool, limited: bool, blocks: &[&[i64]]) -> (Sim, Heap) {
    const CHUNKS: u64 = 100;
    let sizes: Vec<u64> = blocks
        .iter()
        .map(|parts| parts.iter().map(|mib| mib.unsigned_abs()).sum())
        .collect();
    let whole = (sizes.iter().sum::<u64>() + 64 * CHUNKS) * MIB;
    let sim = Sim::new(SimConfig {
        total: whole * (1 + u64::from(limited)),
        ..SimConfig::default()
    });
    let config = Config {
        budget: limited.then_some(whole),
        release_on_oom,
        ..Config::default()
    };
    let mut heap = heap_on(&sim, config);
    let allocate = |heap: &mut Heap, mib: u64| heap.allocate(mib * MIB, Stream(1), Tag(0)).unwrap().block;
    let first: Vec<u32> = sizes.iter().map(|mib| allocate(&mut heap, *mib)).collect();
    let rest = allocate(&mut heap, 64 * CHUNKS);
    heap.free(rest);
    let mut go = Vec::new();
    for _ in 0..CHUNKS {
        for _ in 0..12 {
            allocate(&mut heap, 2);
            go.push(allocate(&mut heap, 3));
        }
        allocate(&mut heap, 4);
    }
    for (block, parts) in first.into_iter().zip(blocks) {
        heap.free(block);
        for mib in *parts {
            let part = allocate(&mut heap, mib.unsigned_abs());
            go.extend((*mib < 0).then_some(part));
        }
    }
    go.into_iter().for_each(|b| heap.free(b));
    (sim, heap)
}

/// However many larger free blocks there are: what they hide is found before the device is waited for, and before anything goes back or is
/// refused.
#[test]
fn very_many_free_blocks_that_are_of_no_use_do_not_hide_smaller_ones_that_are() {
    // The end of a chunk and the beginning of another one, and whole chunks.
    let blocks: [&[&[i64]]; 2] = [&[&[2, -2, 4, -2, 6]], &[&[2], &[-2], &[2], &[-2], &[2], &[-2]]];
    let cases = [(false, false), (false, true), (true, false), (true, true)];
    for (blocks, (release_on_oom, limited)) in blocks.iter().flat_map(|blocks| cases.map(|case| (blocks, case))) {
        let (sim, mut heap) = beside_very_many_of_no_use(release_on_oom, limited, blocks);
        let reserved = sim.live().bytes;
        let calls = |sim: &Sim| [Call::Synchronize, Call::Unmap, Call::Release].map(|call| sim.calls(call));
        let before = calls(&sim);
        let block = heap.allocate(4 * MIB, Stream(1), Tag(0)).unwrap().block;
        assert_eq!((calls(&sim), sim.live().bytes), (before, reserved));
        heap.check();
        // Of a little less, which lies side by side now. A device that had no more leaves room to others first.
        if limited {
            let maps = sim.calls(Call::Map);
            heap.free(block);
            heap.allocate(7 * MIB / 2, Stream(1), Tag(0)).unwrap();
            assert_eq!((calls(&sim), sim.calls(Call::Map)), (before, maps));
            heap.check();
        }
        assert_eq!(sim.violations(), [""; 0]);
    }
}
