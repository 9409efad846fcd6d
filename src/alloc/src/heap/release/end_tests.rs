//! The driver refuses what an ended heap gives back.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use super::*;
use crate::allocator::Allocator;
use crate::config::{Config, SegmentMode};
use crate::device::{Call, Live, Sim, SimConfig, Timeline};
use crate::heap::tests::faults::{everything, stitching};
use crate::publish::Publish;
use crate::stream::Stream;

const MIB: usize = 1 << 20;
const MODES: [SegmentMode; 3] = [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched];
/// What the end of a heap calls.
const CALLS: [Call; 5] = [
    Call::Synchronize,
    Call::Unmap,
    Call::Release,
    Call::Free,
    Call::Unreserve,
];

fn config(segments: SegmentMode) -> Config {
    Config {
        segments,
        publish: Publish::Off,
        max_chunk: 8 * MIB as u64,
        ..Config::default()
    }
}

fn device() -> Sim {
    Sim::new(SimConfig {
        total: 512 * MIB as u64,
        timeline: Timeline::Manual,
        // Other tests do not wait for what is left of it.
        ordinal: 7,
        ..SimConfig::default()
    })
}

/// An allocator that has memory of every kind, and work that uses it.
fn used(sim: &Sim, segments: SegmentMode) -> Allocator {
    let alloc = Allocator::new(sim.device(), config(segments)).unwrap();
    alloc.heap(|heap| everything(heap, sim).unwrap()).unwrap();
    let buffer = alloc.alloc::<u8>(40 * MIB, Stream(2)).unwrap();
    sim.enqueue(Stream(2), buffer.device_ptr(), 40 * MIB as u64);
    alloc
}

/// Another thread may have them in hand.
fn until_all_is_given_back(sim: &Sim, mut again: impl FnMut()) {
    let began = Instant::now();
    while sim.live() != Live::default() {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", sim.live());
        again();
    }
}

/// An allocator that has views.
fn stitched(sim: &Sim, segments: SegmentMode) -> Allocator {
    let alloc = Allocator::new(sim.device(), config(segments)).unwrap();
    let mapped = |heap: &mut Heap| stitching(heap, sim).map(|()| heap.views.mappings);
    assert!(alloc.heap(mapped).unwrap().unwrap() > 0);
    alloc
}

#[test]
fn every_call_of_an_end_fails_once() {
    let used = MODES.map(|segments| (segments, used as fn(&Sim, SegmentMode) -> Allocator));
    for (segments, used) in used.into_iter().chain([(SegmentMode::Stitched, stitched as _)]) {
        for skip in 0.. {
            let sim = device();
            let alloc = used(&sim, segments);
            sim.fail_after(skip, false);
            drop(alloc);
            assert_eq!(sim.live(), Live::default(), "{segments:?}, call {skip}");
            assert_eq!(sim.violations(), Vec::<String>::new(), "{segments:?}, call {skip}");
            if sim.clear_failure() {
                assert!(skip > 3, "the end makes too few calls to mean anything: {skip}");
                break;
            }
        }
    }
}

#[test]
fn what_is_refused_for_a_moment_goes_in_the_same_end() {
    for segments in MODES {
        for (call, times) in CALLS.into_iter().flat_map(|call| [(call, 1), (call, 5)]) {
            let sim = device();
            let alloc = used(&sim, segments);
            sim.fail_next(call, times);
            drop(alloc);
            assert_eq!(sim.live(), Live::default(), "{segments:?}, {call:?}");
            assert_eq!(sim.violations(), Vec::<String>::new(), "{segments:?}, {call:?}");
        }
    }
}

#[test]
fn what_is_refused_for_long_goes_when_another_allocator_does_something() {
    type Again = fn(&Allocator);
    let begins: Again = |_| drop(Allocator::new(device().device(), config(SegmentMode::Plain)).unwrap());
    let releases: Again = |other| assert_eq!(other.release_cached().unwrap(), 0);
    for segments in MODES {
        for (call, again) in CALLS.into_iter().flat_map(|call| [(call, begins), (call, releases)]) {
            let sim = device();
            let alloc = used(&sim, segments);
            let before = sim.live();
            sim.fail_next(call, u64::MAX);
            drop(alloc);
            assert_eq!(sim.violations(), Vec::<String>::new(), "{segments:?}, {call:?}");
            let takes = |call| match call {
                Call::Free => before.allocations > 0,
                Call::Synchronize => true,
                _ => before.ranges > 0,
            };
            assert_eq!(sim.live() != Live::default(), takes(call), "{segments:?}, {call:?}");
            let other = Allocator::new(device().device(), config(segments)).unwrap();
            sim.fail_next(call, 0);
            until_all_is_given_back(&sim, || again(&other));
            assert_eq!(sim.violations(), Vec::<String>::new(), "{segments:?}, {call:?}");
        }
    }
}

/// Another allocator of the device is short of what the ended one has not given back.
#[test]
fn a_request_that_finds_no_memory_has_it_tried_again() {
    // One that has nothing has nothing to wait for either.
    for (segments, has_given_back) in MODES.into_iter().flat_map(|mode| [(mode, true), (mode, false)]) {
        let sim = device();
        let other = Allocator::new(sim.device(), config(segments)).unwrap();
        let alloc = used(&sim, segments);
        sim.fail_next(Call::Synchronize, u64::MAX);
        drop(alloc);
        sim.fail_next(Call::Synchronize, 0);
        if has_given_back {
            drop(other.alloc::<u8>(1, Stream::DEFAULT).unwrap());
        }
        let began = Instant::now();
        let ask = || other.alloc::<u8>(480 * MIB, Stream::DEFAULT);
        let mut served = ask();
        // As long as another thread has it in hand.
        while served.is_err() && began.elapsed() < Duration::from_secs(20) {
            served = ask();
        }
        assert!(served.is_ok(), "{segments:?}: {served:?}");
        drop((served, other));
        // Another thread may have given back enough for the request, and not all yet.
        until_all_is_given_back(&sim, || {});
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}

/// It leaves something, too, while another thread tries to give back what one before it left.
#[test]
fn a_heap_that_ends_waits_for_no_other_devices_driver() {
    let [slow, other] = [(); 2].map(|()| device());
    let [first, second] = [&slow, &other].map(|sim| used(sim, SegmentMode::Plain));
    slow.fail_next(Call::Synchronize, u64::MAX);
    other.fail_next(Call::Synchronize, u64::MAX);
    drop(first);
    let pause = slow.pause(Call::Synchronize);
    slow.fail_next(Call::Synchronize, 0);
    std::thread::scope(|scope| {
        scope.spawn(give_back_remains);
        // Or another test's thread.
        pause.wait();
        let ends = scope.spawn(|| drop(second));
        let began = Instant::now();
        while !ends.is_finished() && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ended = ends.is_finished();
        drop(pause);
        assert!(ended, "it waits for another device's driver");
    });
    other.fail_next(Call::Synchronize, 0);
    for sim in [&slow, &other] {
        until_all_is_given_back(sim, give_back_remains);
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}

/// Unmapping does not wait for it, and a GPU that runs into addresses without memory is lost to the whole process.
#[test]
fn nothing_goes_that_queued_work_may_use() {
    for segments in MODES {
        let sim = device();
        let alloc = used(&sim, segments);
        let before = sim.live();
        sim.fail_next(Call::Synchronize, u64::MAX);
        drop(alloc);
        let after = sim.live();
        assert_eq!(
            (after.bytes, after.mappings, after.allocations),
            (before.bytes, before.mappings, before.allocations)
        );
        sim.fail_next(Call::Synchronize, 0);
        until_all_is_given_back(&sim, give_back_remains);
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}

/// A graph that somebody captures ends by a wait for the device.
#[test]
fn an_allocator_that_has_nothing_waits_for_nobody() {
    let sim = device();
    let alloc = Allocator::new(sim.device(), config(SegmentMode::Stitched)).unwrap();
    drop(alloc);
    assert_eq!(sim.calls(Call::Synchronize), 0);
}
