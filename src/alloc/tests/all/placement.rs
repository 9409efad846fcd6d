//! Where requests go among free memory, on the simulated device.

use gpumem_alloc::device::{self, Call, SimConfig, Timeline};
use gpumem_alloc::{Allocator, Config, Publish, SegmentMode, Stream};

use crate::common::{get, of, start};

const MIB: u64 = 1 << 20;

/// An allocator with free blocks of these sizes, in the order of their addresses, and those.
fn with_free(segments: SegmentMode, free: &[u64]) -> (Allocator, Vec<u64>) {
    let config = Config {
        publish: Publish::Off,
        segments,
        ..Config::default()
    };
    let alloc = Allocator::new(device::sim(SimConfig::default()), config).unwrap();
    let whole = free.iter().sum::<u64>() + 2 * MIB * (1 + free.len() as u64);
    let take = |bytes: u64| alloc.alloc_raw(bytes, Stream::DEFAULT).unwrap();
    alloc.free_raw(take(whole)).unwrap();
    let mut places = Vec::new();
    for size in free {
        places.push(take(*size));
        take(2 * MIB);
    }
    for place in &places {
        alloc.free_raw(*place).unwrap();
    }
    assert!(places.is_sorted());
    (alloc, places)
}

/// Small ones among the large requests lie together at low addresses, so that what is free stays in one piece for those that need it.
/// Larger ones go where they fit best, and so does everything where memory is not stitched.
#[test]
fn small_blocks_of_stitched_memory_lie_low_and_larger_ones_where_they_fit_best() {
    let free = [4 * MIB, 13 * MIB / 4, 40 * MIB, 30 * MIB];
    let cases = [
        (SegmentMode::Stitched, 3 * MIB, 0),
        (SegmentMode::Stitched, 13 * MIB / 4, 1),
        (SegmentMode::Stitched, 25 * MIB, 3),
        (SegmentMode::Plain, 25 * MIB, 3),
    ];
    for (segments, request, expected) in cases {
        let (alloc, places) = with_free(segments, &free);
        let at = alloc.alloc_raw(request, Stream::DEFAULT).unwrap();
        assert_eq!(at, places[expected], "{segments:?}: {request} bytes");
    }
}

/// What a device that is nearly full has free in pieces serves a large request: no chunk is so large that pieces have none of it whole.
#[test]
fn what_lies_free_between_others_on_a_full_device_is_not_lost() {
    for mib in [10, 16, 20, 32, 50, 64, 100] {
        let (sim, alloc) = start(16 << 30, Timeline::Manual, of(SegmentMode::Stitched));
        let get = |mib: usize| alloc.alloc::<u8>(mib << 20, Stream::DEFAULT);
        let mut held: Vec<_> = (0..12_800 / mib).map(|_| Some(get(mib).unwrap())).collect();
        held.iter_mut().step_by(2).for_each(|held| *held = None);
        assert!(get(6400).is_ok(), "two thirds of what blocks of {mib} MiB leave");
        assert_eq!(sim.violations(), [""; 0]);
    }
}

/// Blocks that are held for long lie anywhere, and all that is free went back to the driver: the device has room for a large request, and so
/// has the address space.
#[test]
fn what_is_held_here_and_there_leaves_address_space_for_large_requests() {
    for segments in [SegmentMode::Virtual, SegmentMode::Stitched] {
        let config = Config {
            max_chunk: 2 * MIB,
            ..of(segments)
        };
        let (sim, alloc) = start(64 << 20, Timeline::Immediate, config);
        let mut held: Vec<_> = (0..32).map(|_| get(&alloc, 2)).collect();
        let mut kept = vec![held.remove(31), held.remove(15)];
        drop(held);
        for _ in 0..4 {
            alloc.release_cached().unwrap();
            drop(get(&alloc, 40));
            let mut held: Vec<_> = (0..20).map(|_| get(&alloc, 2)).collect();
            kept.extend(held.pop());
        }
        alloc.release_cached().unwrap();
        assert_eq!(sim.live().bytes, 12 << 20);
        assert!(alloc.alloc::<u8>(52 << 20, Stream::DEFAULT).is_ok(), "{segments:?}");
    }
}

/// There is a range for what is joined, however large chunks may be and however small the device is.
#[test]
fn holes_are_joined_where_chunks_may_be_larger_than_address_ranges() {
    for (total, max_chunk) in [(256u64 << 20, 1 << 30), (80 << 30, 256 << 30), (24 << 20, 64 << 20)] {
        let config = Config {
            segments: SegmentMode::Virtual,
            max_chunk,
            ..Config::default()
        };
        let (sim, alloc) = start(total as usize, Timeline::Immediate, config);
        let mut held: Vec<_> = (0..10).map(|_| get(&alloc, 2)).collect();
        (0..5).rev().for_each(|i| drop(held.remove(2 * i)));
        let calls = sim.total_calls();
        let report = alloc.join_holes(8 << 20, Stream::DEFAULT).unwrap();
        assert!(report.contiguous >= 8 << 20, "{total} {max_chunk} {report:?}");
        assert_eq!(report.driver_calls, sim.total_calls() - calls, "{total} {max_chunk}");
    }
}

/// What moved last left an address range without memory, which goes back.
#[test]
fn every_call_of_a_join_is_counted() {
    let config = Config {
        max_chunk: 2 * MIB,
        ..of(SegmentMode::Virtual)
    };
    let (sim, alloc) = start(64 << 20, Timeline::Immediate, config);
    let mut held: Vec<_> = (0..32).map(|_| Some(get(&alloc, 2))).collect();
    held.iter_mut().step_by(2).for_each(|block| *block = None);
    let join = |mib: u64| {
        let (calls, ranges) = (sim.total_calls(), sim.calls(Call::Unreserve));
        let report = alloc.join_holes(mib << 20, Stream::DEFAULT).unwrap();
        assert_eq!(report.driver_calls, sim.total_calls() - calls, "{mib} MiB");
        sim.calls(Call::Unreserve) - ranges
    };
    assert_eq!(join(32), 0);
    // Behind it there is too little address space for all of the device's memory.
    let among = get(&alloc, 2);
    drop(held);
    assert_eq!(join(62), 0);
    drop(among);
    assert_eq!(join(64), 1);
}

/// Scripts call `empty_cache()` after every step: what they take again is in as few chunks as what they held needs.
#[test]
fn what_a_program_takes_again_after_a_release_is_in_few_chunks() {
    let (sim, alloc) = start(80 << 30, Timeline::Immediate, of(SegmentMode::Stitched));
    let step = || {
        let before = sim.calls(Call::Create);
        let held: Vec<_> = (0..100).map(|_| get(&alloc, 24)).collect();
        drop(held);
        alloc.release_cached().unwrap();
        (sim.calls(Call::Create) - before, sim.live().bytes)
    };
    let (first, left) = step();
    assert_eq!(left, 0);
    for _ in 0..3 {
        let (again, _) = step();
        assert!(
            (40..=110).contains(&again) && first > again,
            "{again} chunks, {first} at first"
        );
    }
    // And no more than before.
    assert!(alloc.stats().all().reserved_bytes.peak < 2450 << 20);
}

/// Blocks of 1 to 40 MiB, of so many MiB at most, one for another again and again. What they take at most of what they ask for, in thousandths.
fn exchanged(alloc: &Allocator, most: u64) -> u64 {
    let (mut held, mut bytes, mut state) = (Vec::new(), 0, 1_u64);
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    alloc.reset_peaks();
    for _ in 0..3000 {
        let size = (16 + random(640)) * MIB / 16;
        while bytes + size > most * MIB {
            let (addr, less) = held.swap_remove(random(held.len() as u64) as usize);
            alloc.free_raw(addr).unwrap();
            bytes -= less;
        }
        held.push((alloc.alloc_raw(size, Stream::DEFAULT).unwrap(), size));
        bytes += size;
    }
    held.into_iter().for_each(|(addr, _)| alloc.free_raw(addr).unwrap());
    let all = alloc.stats().all();
    all.reserved_bytes.peak * 1000 / all.requested_bytes.peak
}

/// A server that prepared itself with much more memory than it needs then.
#[test]
fn what_was_held_before_a_release_is_no_reason_to_take_memory() {
    let new = || start(80 << 30, Timeline::Immediate, of(SegmentMode::Stitched)).1;
    let alone = exchanged(&new(), 2 << 10);
    let alloc = new();
    exchanged(&alloc, 8 << 10);
    alloc.release_cached().unwrap();
    let then = exchanged(&alloc, 2 << 10);
    assert!(
        then <= alone + 50,
        "{then} thousandths, and {alone} in a program that does nothing else"
    );
}
