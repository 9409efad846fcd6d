//! What a full device has left for CUDA's own libraries, and for other programs.

use gpumem_alloc::device::{Call, Timeline};
use gpumem_alloc::{Allocator, Buffer, Config, Publish, SegmentMode, Stream};

use crate::common::{MIB, get, of, start};

const TOTAL: usize = 4 << 30;
/// What is left to others.
const ROOM: u64 = TOTAL as u64 / 64;

fn free(alloc: &Allocator) -> u64 {
    alloc.device().memory().unwrap().free
}

/// Blocks of so many MiB, until there is no memory for another one.
fn fill(alloc: &Allocator, mib: usize) -> Vec<Option<Buffer<u8>>> {
    std::iter::from_fn(|| alloc.alloc::<u8>(mib * MIB, Stream::DEFAULT).ok())
        .map(Some)
        .collect()
}

/// Large blocks that fill the device, of which every other one goes.
fn half(alloc: &Allocator) -> Vec<Option<Buffer<u8>>> {
    let mut held = fill(alloc, 96);
    held.iter_mut().step_by(2).for_each(|block| *block = None);
    held
}

/// A program that takes so many MiB of the device first, for good, and one beside it.
fn beside(mib: usize, config: &Config) -> (Allocator, Buffer<u8>, Allocator) {
    let (sim, first) = start(TOTAL, Timeline::Immediate, config.clone());
    let taken = get(&first, mib);
    let config = Config {
        publish: Publish::Off,
        ..config.clone()
    };
    (first, taken, Allocator::new(sim.device(), config).unwrap())
}

/// The cache has gigabytes for these, and cuBLAS has what it asks the driver for next. What others have when the driver refuses memory is not
/// all that they need; where it has not, it is a part of that.
#[test]
fn small_requests_do_not_take_the_last_of_the_device() {
    for (mib, refused) in [
        (2, false),
        (30, false),
        (40, false),
        (80, true),
        (110, true),
        (500, true),
    ] {
        let (_first, _taken, alloc) = beside(mib, &of(SegmentMode::Stitched));
        let _held = half(&alloc);
        let small: Vec<_> = (0..1000).map(|_| get(&alloc, 1)).collect();
        let left = free(&alloc) + if refused { 0 } else { (mib * MIB) as u64 };
        assert!((ROOM..3 * ROOM).contains(&left), "{mib}: {left}");
        drop(small);
    }
}

/// Who needs all of it has all of it.
#[test]
fn what_is_left_to_others_is_taken_before_a_request_fails() {
    let (_first, _taken, alloc) = beside(80, &of(SegmentMode::Stitched));
    let _held = half(&alloc);
    let _small: Vec<_> = (0..200).map(|_| get(&alloc, 1)).collect();
    assert!(free(&alloc) >= ROOM);
    let _all = fill(&alloc, 2);
    let all = alloc.stats().all();
    assert!(free(&alloc) < 2 * MIB as u64);
    assert!(
        all.reserved_bytes.current - all.allocated_bytes.current < 4 * MIB as u64,
        "{all:?}"
    );
}

/// The cache has all of what is asked for, and little more: it does not go back first, for another program to take.
#[test]
fn what_a_request_takes_does_not_go_back_before_it() {
    let (_first, _taken, alloc) = beside(80, &of(SegmentMode::Stitched));
    let mut held = half(&alloc);
    let cached = || {
        let all = alloc.stats().all();
        all.reserved_bytes.current - all.allocated_bytes.current
    };
    while cached() >= 2 * ROOM + (110 * MIB) as u64 {
        held.push(Some(get(&alloc, 96)));
    }
    assert!(cached() >= 2 * ROOM);
    let (before, reserved) = (
        alloc.stats().num_device_free,
        alloc.stats().all().reserved_bytes.current,
    );
    held.push(Some(get(&alloc, 110)));
    let after = (
        alloc.stats().num_device_free,
        alloc.stats().all().reserved_bytes.current,
    );
    assert_eq!(after, (before, reserved));
}

/// Chunks that the driver does not take stay, and serve.
#[test]
fn room_that_the_driver_does_not_take_is_not_lost() {
    for call in [Call::Unmap, Call::Release] {
        let (_first, _taken, alloc) = beside(80, &of(SegmentMode::Stitched));
        let held = half(&alloc);
        let sim = alloc.device().as_sim().unwrap();
        let all = (TOTAL - 80 * MIB) as u64;
        sim.fail_next(call, 3);
        let small: Vec<_> = (0..1000).map(|_| get(&alloc, 1)).collect();
        assert_eq!(
            free(&alloc) + alloc.stats().all().reserved_bytes.current,
            all,
            "{call:?}"
        );
        drop((held, small));
        while alloc.release_cached().is_err() {}
        assert_eq!(
            (free(&alloc), alloc.stats().all().reserved_bytes.current),
            (all, 0),
            "{call:?}"
        );
    }
}

/// Chunks that are mapped in another place, too, are the device's only once they are nowhere: what goes back without its mappings is lost to
/// both.
#[test]
fn room_that_was_stitched_from_is_not_lost() {
    for fails in [false, true] {
        let (sim, alloc) = start(TOTAL, Timeline::Immediate, of(SegmentMode::Stitched));
        let mut held: Vec<_> = (0..30).map(|_| Some(get(&alloc, 96))).collect();
        held.iter_mut().step_by(2).for_each(|block| *block = None);
        // Each from more than one of the holes, until something else is asked for.
        drop([150, 250, 350].map(|mib| get(&alloc, mib)));
        drop(get(&alloc, 96));
        let live = sim.live();
        assert!(live.mappings > live.chunks, "{live:?}");
        sim.set_used_by_others(TOTAL as u64 - live.bytes);
        // Of the first view.
        sim.fail_next(Call::Unmap, u64::from(fails));
        let small: Vec<_> = (0..500).map(|_| get(&alloc, 1)).collect();
        let reserved = || alloc.stats().all().reserved_bytes.current;
        assert_eq!(reserved(), sim.live().bytes);
        assert_eq!(free(&alloc) >= ROOM, !fails);
        drop((held, small));
        alloc.release_cached().unwrap();
        assert_eq!((reserved(), sim.live().bytes), (0, 0));
    }
}

#[test]
fn a_program_that_gives_nothing_back_leaves_nothing() {
    let config = Config {
        release_on_oom: false,
        ..of(SegmentMode::Stitched)
    };
    let (_first, _taken, alloc) = beside(80, &config);
    let _held = half(&alloc);
    let reserved = alloc.stats().all().reserved_bytes.current;
    let _small: Vec<_> = (0..500).map(|_| get(&alloc, 1)).collect();
    assert!(alloc.stats().all().reserved_bytes.current >= reserved);
    assert_eq!(alloc.stats().num_device_free, 0);
}
