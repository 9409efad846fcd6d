//! Requests that take memory, and what they give back for it.

use std::time::Duration;

use gpumem_alloc::device::{Call, Timeline};
use gpumem_alloc::{Allocator, Config, Error, Publish, SegmentMode};

use crate::driver_calls::bench::{Bench, MIB, OTHER, pool};

#[test]
fn new_memory() {
    for (segments, call) in [
        (SegmentMode::Plain, Call::Alloc),
        (SegmentMode::Virtual, Call::Create),
        (SegmentMode::Virtual, Call::SetAccess),
        (SegmentMode::Stitched, Call::Map),
        (SegmentMode::Stitched, Call::Reserve),
    ] {
        let bench = match call {
            // Once only.
            Call::Reserve => Bench::of(segments),
            _ => Bench::roomy(segments),
        };
        drop(bench.others_go_on(call, || bench.get(100, OTHER)));
        bench.end();
    }
}

/// What a growth took before it found that the device has not enough goes back.
#[test]
fn a_growth_that_fails_half_way() {
    for call in [Call::Unmap, Call::Release] {
        let bench = Bench::of(SegmentMode::Virtual);
        let held = bench.get(90, OTHER);
        // Who has the rest is not known until it is missing.
        let unseen = Config {
            publish: Publish::Off,
            ..Config::default()
        };
        let elsewhere = Allocator::new(bench.sim.device(), unseen).unwrap();
        let other = elsewhere.alloc::<u8>(60 * MIB, OTHER).unwrap();
        let refused = bench.others_go_on(call, || bench.alloc.alloc::<u8>(150 * MIB, OTHER));
        assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
        drop((held, other, elsewhere));
        bench.end();
    }
}

/// A request that finds no memory: what it gives back so that it may, its own and others'.
#[test]
fn making_room() {
    for (segments, call) in [
        (SegmentMode::Plain, Call::Synchronize),
        (SegmentMode::Plain, Call::Free),
        (SegmentMode::Stitched, Call::Free),
    ] {
        let bench = Bench::of(segments);
        let (low, high) = (pool(&bench, -1), pool(&bench, 1));
        drop(low.alloc::<u8>(60 * MIB, OTHER).unwrap());
        drop(high.alloc::<u8>(70 * MIB, OTHER).unwrap());
        drop(bench.get(90, OTHER));
        let large = bench.others_go_on(call, || high.alloc::<u8>(150 * MIB, OTHER).unwrap());
        assert_eq!(low.stats().reserved_bytes.current, 0);
        drop((large, low, high));
        bench.end();
    }
}

/// What was idle for long goes before more memory is taken than the configuration allows.
#[test]
fn collecting_what_is_idle() {
    for call in [Call::Synchronize, Call::Free] {
        let config = Config {
            segments: SegmentMode::Plain,
            budget: Some(200 << 20),
            garbage_collection_threshold: Some(0.4),
            ..Config::default()
        };
        let bench = Bench::new(config, Timeline::After(3));
        drop((bench.get(50, OTHER), bench.get(60, OTHER)));
        drop(bench.others_go_on(call, || bench.get(70, OTHER)));
        assert!(bench.reserved() < 180 * MIB, "one of the two went");
        bench.end();
    }
}

/// Who asks for memory that is just going waits for it and no longer: it is not told that there is none.
#[test]
fn memory_that_is_just_going() {
    for refused in [false, true] {
        let config = Config {
            segments: SegmentMode::Plain,
            release_on_oom: false,
            budget: Some(110 << 20),
            ..Config::default()
        };
        let bench = Bench::new(config, Timeline::After(3));
        drop(bench.get(100, OTHER));
        let pause = bench.sim.pause(Call::Free);
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| bench.alloc.release_cached());
            pause.wait();
            let asks = scope.spawn(|| bench.alloc.alloc::<u8>(100 * MIB, OTHER));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!asks.is_finished(), "there is no room for it within the budget");
            if refused {
                bench.sim.fail_after(0, false);
            }
            drop(pause);
            assert_eq!(slow.join().unwrap().is_err(), refused);
            assert!(asks.join().unwrap().is_ok());
        });
        bench.end();
    }
}
