//! What a report says would have helped, done as it says.

use gpumem_alloc::device::{Sim, Timeline};
use gpumem_alloc::{Allocator, Config, Error, Help, Overflow, PoolConfig, Route, SegmentMode, Stream};

use crate::common::{MIB, fails, get, of, short, start};

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

/// Sizes are told rounded; what is said of an absurd one can still be followed.
#[test]
fn as_much_smaller_as_is_said_leaves_something() {
    let (_, alloc) = sim(1 << 10, Config::default());
    for asked in [16 << 40, 1100 * MIB] {
        let error = alloc.alloc::<u8>(asked, S).unwrap_err().to_string();
        let told = error.split("smaller by ").nth(1).unwrap();
        let (figure, unit) = told.split_once(' ').unwrap();
        let unit = ["B", "KiB", "MiB", "GiB", "TiB"]
            .iter()
            .position(|name| unit.starts_with(name))
            .unwrap();
        let less = figure.parse::<f64>().unwrap() * (1_u64 << (10 * unit)) as f64;
        let served = alloc.alloc::<u8>(asked - less as usize, S);
        assert!(served.is_ok_and(|buffer| buffer.len() > 400 * MIB), "{error}");
    }
}

/// It is refused before the cache is given up, and a smaller one would not be.
#[test]
fn what_is_beyond_everything_is_advised_as_if_the_cache_were_given_up() {
    for segments in SegmentMode::ALL {
        let config = Config {
            segments,
            ..Config::default()
        };
        let (_, alloc) = sim(200, config.clone());
        drop(get(&alloc, 100));
        let report = fails(&alloc, 230);
        assert!(report.helps.contains(&Help::SmallerBy { bytes: 30 << 20 }), "{report}");
        drop(get(&alloc, 200));

        let (_, alloc) = sim(200, config);
        alloc.set_budget(Some(100 << 20)).unwrap();
        drop(get(&alloc, 100));
        let report = fails(&alloc, 130);
        for help in [
            Help::RaiseBudget { bytes: 30 << 20 },
            Help::SmallerBy { bytes: 30 << 20 },
        ] {
            assert!(report.helps.contains(&help), "{segments:?}: {report}");
        }
        alloc.set_budget(Some(130 << 20)).unwrap();
        drop(get(&alloc, 130));
    }
}

/// Neither what its pool cached nor what others did is enough, but both together are.
#[test]
fn all_that_is_cached_is_advised_to_be_released_where_that_is_enough() {
    for segments in SegmentMode::ALL {
        let config = Config {
            segments,
            release_on_oom: false,
            ..Config::default()
        };
        let (_, alloc) = sim(100, config);
        let pool = alloc.pool("tenant", PoolConfig::default()).unwrap();
        drop(get(&alloc, 40));
        drop(pool.alloc::<u8>(40 * MIB, S).unwrap());
        let ask = || pool.alloc::<u8>(90 * MIB, S);
        let Err(Error::OutOfMemory(report)) = ask() else {
            panic!()
        };
        assert!(
            report.helps.contains(&Help::ReleasePools { bytes: 80 << 20 }),
            "{report}"
        );
        alloc.release_cached().unwrap();
        drop(ask().unwrap());
    }
}

/// Whatever of it is the pool's own, which may be all of it where the request overflows.
#[test]
fn what_a_release_of_all_is_said_to_free_is_what_it_frees() {
    let soft = PoolConfig {
        budget: Some(40 << 20),
        overflow: Overflow::Shared,
        ..PoolConfig::default()
    };
    for segments in SegmentMode::ALL {
        for (config, outside, own, asked) in [(PoolConfig::default(), 70, 10, 80), (soft, 0, 40, 90)] {
            let without = Config {
                release_on_oom: false,
                ..of(segments)
            };
            let (_, alloc) = sim(100, without);
            let pool = alloc.pool("tenant", config).unwrap();
            drop(alloc.alloc::<u8>(outside * MIB, S).unwrap());
            drop(pool.alloc::<u8>(own * MIB, S).unwrap());
            let report = short(pool.alloc::<u8>(asked * MIB, S));
            let text = report.to_string();
            let said = report.helps.iter().find_map(|help| match help {
                Help::ReleasePools { bytes } => Some(*bytes),
                _ => None,
            });
            let cached = (outside + own) << 20;
            assert_eq!(said, Some(cached as u64), "{text}");
            let words = format!("release the allocator's whole cache ({}.0 MiB)", outside + own);
            assert!(text.contains(&words), "{text}");
            assert_eq!(alloc.release_cached().unwrap(), cached as u64);
            drop(pool.alloc::<u8>(asked * MIB, S).unwrap());
        }
    }
}

/// What lies free at the end of a segment need not be taken anew.
#[test]
fn a_release_that_is_enough_beside_what_is_free_is_advised() {
    let (_, alloc) = sim(9, Config::default());
    let _tail = alloc.alloc::<u8>(3 * MIB / 2, S).unwrap();
    let [idle, held] = ["idle", "held"].map(|name| alloc.pool(name, PoolConfig::default()).unwrap());
    let _held = held.alloc::<u8>(4 * MIB, S).unwrap();
    drop(idle.alloc::<u8>(1000, S).unwrap());
    let ask = || alloc.alloc::<u8>(24 * MIB / 10, S);
    let Err(Error::OutOfMemory(report)) = ask() else {
        panic!()
    };
    assert!(
        report.helps.contains(&Help::ReleaseCache { bytes: 2 << 20 }),
        "{report}"
    );
    alloc.release_cached().unwrap();
    drop(ask().unwrap());
}

/// What other streams may still use is none that a smaller request would have, either.
#[test]
fn a_smaller_request_is_not_advised_to_take_what_another_stream_may_use() {
    for captures in [true, false] {
        let config = Config {
            release_on_oom: captures,
            ..Config::default()
        };
        let (sim, alloc) = sim(100, config);
        let other = alloc.alloc::<u8>(60 * MIB, Stream(2)).unwrap();
        sim.enqueue(Stream(2), other.device_ptr(), other.bytes());
        drop(other);
        let graph = alloc.private_pool().unwrap();
        let route = Route::Stream(Stream(9));
        let captured = captures.then(|| alloc.begin_allocate_to_pool(&graph, route).unwrap());
        let Err(Error::OutOfMemory(report)) = alloc.alloc::<u8>(90 * MIB, Stream(1)) else {
            panic!()
        };
        assert_eq!(report.largest_free, 0, "{report}");
        let less = report.helps.iter().find_map(|help| match help {
            Help::SmallerBy { bytes } => Some(*bytes as usize),
            _ => None,
        });
        drop(alloc.alloc::<u8>(90 * MIB - less.unwrap(), Stream(1)).unwrap());
        if captured.is_some() {
            alloc.end_allocate_to_pool(&graph).unwrap();
        }
    }
}

/// Who reads a report does what its text says, which has one decimal.
#[test]
fn what_the_text_says_is_enough() {
    for (segments, step) in SegmentMode::ALL
        .into_iter()
        .flat_map(|mode| (0..40).map(move |n| (mode, n)))
    {
        let asked = 23 * MIB + step * 123_457;
        let start = || {
            sim(
                64,
                Config {
                    budget: Some((20 << 20) + 777),
                    ..of(segments)
                },
            )
            .1
        };
        let alloc = start();
        let Err(Error::OutOfMemory(report)) = alloc.alloc::<u8>(asked, S) else {
            panic!("it fits")
        };
        let text = report.to_string();
        let told = |help: &str| {
            let (_, told) = text.split_once(help).unwrap_or_else(|| panic!("{text}"));
            let mut words = told.split([' ', ',']);
            let number: f64 = words.next().unwrap().parse().unwrap();
            let unit = match words.next().unwrap() {
                "MiB" => MIB,
                "KiB" => 1024,
                other => panic!("{other}"),
            };
            // What is typed where a limit is asked for.
            (number * unit as f64) as u64
        };
        let smaller = asked - told("smaller by ") as usize;
        drop(
            alloc
                .alloc::<u8>(smaller, S)
                .unwrap_or_else(|error| panic!("{text}\n{error}")),
        );
        let alloc = start();
        alloc
            .set_budget(Some((20 << 20) + 777 + told("raise the budget by ")))
            .unwrap();
        drop(
            alloc
                .alloc::<u8>(asked, S)
                .unwrap_or_else(|error| panic!("{text}\n{error}")),
        );
    }
}

/// The whole chunks of what will be free are too few: it takes a piece at each end, too.
#[test]
fn what_is_stitched_once_the_gpu_is_done_is_advised_to_wait() {
    for captures in [true, false] {
        let config = Config {
            budget: Some(8 << 20),
            max_chunk: 2 << 20,
            release_on_oom: captures,
            ..of(SegmentMode::Stitched)
        };
        let (sim, alloc) = sim(100, config);
        let [free, _held, pending] = [3, 2, 3].map(|mib| get(&alloc, mib));
        let graph = alloc.private_pool().unwrap();
        let route = Route::Stream(Stream(9));
        let captured = captures.then(|| alloc.begin_allocate_to_pool(&graph, route).unwrap());
        sim.enqueue(Stream(1), pending.device_ptr(), pending.bytes());
        pending.record_stream(Stream(1)).unwrap();
        drop((free, pending));
        let report = fails(&alloc, 6);
        assert_eq!(report.helps[0], Help::Wait { capturing: captures }, "{report}");
        sim.finish(Stream(1));
        if captured.is_some() {
            alloc.end_allocate_to_pool(&graph).unwrap();
        }
        let bytes = sim.live().bytes;
        drop(get(&alloc, 6));
        assert_eq!(sim.live().bytes, bytes, "it was stitched");
    }
}

/// Of what will be free a part lies where new memory goes on, in no whole chunk.
#[test]
fn what_new_memory_goes_on_from_once_the_gpu_is_done_is_advised_to_wait() {
    let config = Config {
        budget: Some(8 << 20),
        max_chunk: 2 << 20,
        release_on_oom: false,
        ..of(SegmentMode::Stitched)
    };
    let (sim, alloc) = sim(100, config);
    let [_held, pending] = [3, 3].map(|mib| get(&alloc, mib));
    sim.enqueue(Stream(1), pending.device_ptr(), pending.bytes());
    pending.record_stream(Stream(1)).unwrap();
    drop(pending);
    let report = fails(&alloc, 5);
    assert_eq!(report.helps[0], Help::Wait { capturing: false }, "{report}");
    sim.finish(Stream(1));
    drop(get(&alloc, 5));
}

/// What a release leaves of it is stitched with the memory that the cache of others was.
#[test]
fn a_release_that_is_enough_beside_pieces_is_advised() {
    let config = Config {
        budget: Some(10 << 20),
        max_chunk: 2 << 20,
        release_on_oom: false,
        ..of(SegmentMode::Stitched)
    };
    let (sim, alloc) = sim(100, config);
    let [free, _held, pending] = [3, 2, 3].map(|mib| get(&alloc, mib));
    let tenant = alloc.pool("tenant", PoolConfig::default()).unwrap();
    drop(tenant.alloc::<u8>(1000, S).unwrap());
    sim.enqueue(Stream(1), pending.device_ptr(), pending.bytes());
    pending.record_stream(Stream(1)).unwrap();
    drop((free, pending));
    let report = fails(&alloc, 7);
    assert_eq!(report.helps[0], Help::ReleaseCache { bytes: 6 << 20 }, "{report}");
    alloc.release_cached().unwrap();
    drop(get(&alloc, 7));
}

/// What lies free beside what waits goes back together with that, and is not there for new memory to go on from.
#[test]
fn a_release_that_takes_the_beginning_of_a_request_with_it_is_not_advised() {
    let config = Config {
        budget: Some(9 << 20),
        max_chunk: 2 << 20,
        release_on_oom: false,
        ..of(SegmentMode::Stitched)
    };
    let (sim, alloc) = sim(100, config);
    let get = |kib: usize| alloc.alloc::<u8>(kib << 10, S).unwrap();
    let [_held, pending, free] = [2048, 1536, 2560].map(get);
    sim.enqueue(Stream(1), pending.device_ptr(), pending.bytes());
    pending.record_stream(Stream(1)).unwrap();
    drop((pending, free));
    let ask = || alloc.alloc::<u8>(13 * MIB / 2, S);
    let report = crate::common::short(ask());
    let releases = |help: &Help| matches!(help, Help::ReleaseCache { .. });
    assert!(!report.helps.iter().any(releases), "{report}");
    alloc.release_cached().unwrap();
    assert!(ask().is_err(), "{report}");
}
