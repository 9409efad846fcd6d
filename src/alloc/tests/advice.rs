//! What a report says would have helped, done as it says.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{MIB, fails, get, start};
use gpumem_alloc::device::{Sim, Timeline};
use gpumem_alloc::{Allocator, Config, Error, Help, Overflow, PoolConfig, SegmentMode, Stream};

const S: Stream = Stream::DEFAULT;

fn sim(total: usize, config: Config) -> (Sim, Allocator) {
    start(total * MIB, Timeline::Manual, config)
}

#[test]
fn a_budget_that_was_lowered_is_raised_by_all_that_is_missing() {
    for segments in SegmentMode::ALL {
        let config = Config {
            segments,
            ..Config::default()
        };
        let (_, alloc) = sim(2000, config);
        let _held = get(&alloc, 1000);
        alloc.set_budget(Some(100 << 20)).unwrap();
        let report = fails(&alloc, 50);
        let raise = report.helps.iter().find_map(|help| match help {
            Help::RaiseBudget { bytes } => Some(*bytes),
            _ => None,
        });
        assert_eq!(raise, Some(950 << 20), "{report}");
        alloc.set_budget(Some((100 + 950) << 20)).unwrap();
        let _now = get(&alloc, 50);
    }
}

/// What a release brings goes to what is reserved beyond the budget first.
#[test]
fn a_release_that_stays_beyond_a_lowered_budget_is_not_advised() {
    let config = Config {
        segments: SegmentMode::Plain,
        release_on_oom: false,
        ..Config::default()
    };
    let (_, alloc) = sim(2000, config);
    let (_held, cached) = (get(&alloc, 200), get(&alloc, 40));
    alloc.set_budget(Some(100 << 20)).unwrap();
    drop(cached);
    let report = fails(&alloc, 50);
    let releases = |help: &Help| matches!(help, Help::ReleaseCache { .. } | Help::ReleasePools { .. });
    assert!(!report.helps.iter().any(releases), "{report}");
}

/// Virtual memory is taken in whole pages, of which a budget may have a part.
#[test]
fn a_release_that_leaves_room_for_a_part_of_a_page_is_not_advised() {
    for segments in [SegmentMode::Virtual, SegmentMode::Stitched] {
        let config = Config {
            segments,
            budget: Some(7 << 20),
            release_on_oom: false,
            ..Config::default()
        };
        let (_, alloc) = sim(1000, config);
        let pool = alloc.pool("other", PoolConfig::default()).unwrap();
        drop(pool.alloc::<u8>(2 * MIB, S).unwrap());
        let bytes = 13 * MIB / 2;
        let Err(Error::OutOfMemory(report)) = alloc.alloc::<u8>(bytes, S) else {
            panic!("{segments:?}: it fits")
        };
        assert_eq!(
            report.helps[0],
            Help::RaiseBudget { bytes: 3 << 20 },
            "{segments:?}: {report}"
        );
        alloc.set_budget(Some(10 << 20)).unwrap();
        drop(alloc.alloc::<u8>(bytes, S).unwrap());
    }
}

#[test]
fn what_overflows_is_told_to_release_the_cache_that_it_would_have_memory_from() {
    let config = Config {
        segments: SegmentMode::Plain,
        release_on_oom: false,
        ..Config::default()
    };
    let (_, alloc) = sim(100, config);
    let config = PoolConfig {
        budget: Some(10 << 20),
        overflow: Overflow::Shared,
        ..PoolConfig::default()
    };
    let pool = alloc.pool("soft", config).unwrap();
    drop((get(&alloc, 30), get(&alloc, 30)));
    let Err(Error::OutOfMemory(report)) = pool.alloc::<u8>(50 * MIB, S) else {
        panic!("it fits")
    };
    assert_eq!(report.helps[0], Help::ReleasePools { bytes: 60 << 20 }, "{report}");
    assert_eq!(pool.release_cached().unwrap(), 0);
    alloc.release_cached().unwrap();
    drop(pool.alloc::<u8>(50 * MIB, S).unwrap());
}

#[test]
fn what_can_be_done_only_after_a_capture_says_so() {
    for segments in SegmentMode::ALL {
        let config = Config {
            segments,
            ..Config::default()
        };
        let (_, alloc) = sim(1000, config);
        let other = alloc.alloc::<u8>(400 * MIB, Stream(1)).unwrap();
        let _held = get(&alloc, 500);
        let pool = alloc.private_pool().unwrap();
        let filter = std::sync::Arc::new(|stream| stream == Stream(9));
        alloc
            .begin_allocate_to_pool(&pool, gpumem_alloc::Route::Filter(filter))
            .unwrap();
        drop(other);
        let report = fails(&alloc, 300);
        assert_eq!(report.helps[0], Help::EndCapture, "{report}");
        let joins = |help: &Help| matches!(help, Help::JoinHoles { .. });
        assert!(!report.helps.iter().any(joins), "{report}");
        assert!(matches!(alloc.release_cached(), Err(Error::Capturing)));
        alloc.end_allocate_to_pool(&pool).unwrap();
        let _now = get(&alloc, 300);
    }
}

/// A block of 2 MiB is for requests that come to 2 MiB at least, where memory is virtual: 1 MiB more off would be another sort of request.
#[test]
fn a_smaller_request_of_what_is_said_is_served() {
    for segments in SegmentMode::ALL {
        for step in [0, 1 << 10, 300 << 10, 1 << 20] {
            let config = Config {
                segments,
                max_chunk: 2 << 20,
                ..Config::default()
            };
            let (_, alloc) = sim(200, config);
            let mut held: Vec<_> = (0..9).map(|_| Some(get(&alloc, 22))).collect();
            held[3] = None;
            held[5] = None;
            let asked = 49 * MIB - step;
            let Err(Error::OutOfMemory(report)) = alloc.alloc::<u8>(asked, S) else {
                panic!("{segments:?}: {asked} bytes of 44 MiB");
            };
            let less = report.helps.iter().find_map(|help| match help {
                Help::SmallerBy { bytes } => Some(*bytes as usize),
                _ => None,
            });
            let less = less.unwrap_or_else(|| panic!("{segments:?}: {report}"));
            let served = alloc.alloc::<u8>(asked - less, S);
            assert!(served.is_ok(), "{segments:?}, smaller by {less}: {report}");
        }
    }
}
