//! The way to an out-of-memory error, and what it says.

use gpumem_alloc::device::{self, Call, Sim, SimConfig, Timeline};
use gpumem_alloc::{Allocator, Config, Error, Help, History, PoolConfig, Publish, SegmentMode, Stacks, Stream};

use crate::common::{MIB, fails, get, of, start};

const S: Stream = Stream::DEFAULT;

/// A chunk that could not be unmapped is taken again for what is tried next. If that fails, too, the chunk may still be mapped where it was.
#[test]
fn what_the_driver_still_has_stays_counted_however_often_it_fails() {
    for segments in [SegmentMode::Virtual, SegmentMode::Stitched] {
        let (sim, alloc) = start(100 * MIB, Timeline::Manual, of(segments));
        sim.fail_next(Call::SetAccess, 2);
        sim.fail_next(Call::Unmap, 1);
        assert!(alloc.alloc::<u8>(2 * MIB, S).is_err(), "it was tried twice");
        assert_eq!(alloc.stats().all().reserved_bytes.current, sim.live().bytes);
        alloc.release_cached().unwrap();
        assert_eq!((sim.live().bytes, sim.violations()), (0, vec![]));
    }
}

#[test]
fn the_cache_is_given_back_before_a_request_fails() {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual] {
        let (sim, alloc) = start(
            100 * MIB,
            Timeline::Manual,
            Config {
                segments,
                ..Config::default()
            },
        );
        let (small, large) = (get(&alloc, 12), get(&alloc, 60));
        drop(large);
        let _held = (small, get(&alloc, 80));
        let stats = alloc.stats();
        assert_eq!(
            (stats.num_alloc_retries, stats.num_ooms),
            (u64::from(segments == SegmentMode::Plain), 0)
        );
        assert!(sim.live().bytes <= 100 << 20);
    }
}

/// A trace may ask for 100 TiB again and again: that is no list of 50 million chunks to be made, of which the first few thousand are.
#[test]
fn more_than_the_device_has_takes_no_driver_call() {
    for segments in [SegmentMode::Virtual, SegmentMode::Stitched] {
        let config = Config {
            segments,
            ..Config::default()
        };
        let (sim, alloc) = start(100 * MIB, Timeline::Manual, config);
        fails(&alloc, 100 << 20);
        // What the device has left is in the report.
        assert_eq!(sim.total_calls() - sim.calls(Call::MemoryInfo), 0, "{segments:?}");
        let all = get(&alloc, 100);
        assert!(sim.calls(Call::Create) > 0);
        drop(all);
    }
}

/// Nothing that is cached goes back for it either, and nobody is waited for.
#[test]
fn more_than_there_ever_can_be_changes_nothing() {
    let modes = [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched];
    for (segments, budget) in modes
        .into_iter()
        .flat_map(|mode| [(mode, None), (mode, Some(60 << 20))])
    {
        let config = Config {
            segments,
            budget,
            ..Config::default()
        };
        let (sim, alloc) = start(100 * MIB, Timeline::Manual, config);
        let tenant = PoolConfig {
            budget: Some(30 << 20),
            ..PoolConfig::default()
        };
        let pool = alloc.pool("tenant", tenant).unwrap();
        drop(get(&alloc, 20));
        // What the device has left is in the report.
        let seen = || {
            let reserved = alloc.stats().all().reserved_bytes.current;
            (reserved, sim.total_calls() - sim.calls(Call::MemoryInfo))
        };
        let before = seen();
        fails(&alloc, if budget.is_some() { 61 } else { 101 });
        assert!(pool.alloc::<u8>(31 * MIB, S).is_err());
        assert_eq!(before, seen(), "{segments:?} {budget:?}");
    }
}

#[test]
fn pending_blocks_are_waited_for_before_a_request_fails() {
    let (sim, alloc) = start(100 * MIB, Timeline::Manual, Config::default());
    let block = get(&alloc, 80);
    block.record_stream(Stream(9)).unwrap();
    sim.enqueue(Stream(9), block.device_ptr(), 80 << 20);
    drop(block);
    let again = get(&alloc, 80);
    assert_eq!(
        (sim.calls(Call::Synchronize), alloc.stats().num_sync_all_streams),
        (1, 1)
    );
    assert_eq!(alloc.stats().num_device_free, 0, "nothing had to go back to the driver");
    drop(again);
}

#[test]
fn a_request_that_is_refused_again_waits_for_nobody() {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        // What others use is not known until it is missing: else nothing would be waited for.
        let (sim, _) = start(200 * MIB, Timeline::Manual, crate::common::of(segments));
        let [alloc, other] = [(); 2].map(|()| {
            let config = Config {
                publish: Publish::Off,
                ..crate::common::of(segments)
            };
            Allocator::new(sim.device(), config).unwrap()
        });
        let _used = get(&other, 100);
        let mut held: Vec<_> = (0..4).map(|_| get(&alloc, 20)).collect();
        let waits = || {
            fails(&alloc, 70);
            sim.calls(Call::Synchronize)
        };
        assert_eq!([waits(), waits()], [0, 0], "nothing was ever given back");
        for wait in 1..3 {
            held.pop();
            assert_eq!([waits(), waits()], [wait, wait], "{segments:?}");
        }
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}

#[test]
fn a_small_growth_is_tried_when_the_usual_one_does_not_fit() {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual] {
        let (_, alloc) = start(
            100 * MIB,
            Timeline::Manual,
            Config {
                segments,
                budget: Some(6 << 20),
                ..Config::default()
            },
        );
        let _block = get(&alloc, 5);
        assert_eq!(
            alloc.stats().all().reserved_bytes.current,
            6 << 20,
            "instead of the 20 MiB that others could share"
        );
    }
}

#[test]
fn the_budget_holds_and_is_named() {
    let (_, alloc) = start(
        1000 * MIB,
        Timeline::Manual,
        Config {
            budget: Some(100 << 20),
            ..Config::default()
        },
    );
    let _held = get(&alloc, 90);
    let report = fails(&alloc, 20);
    assert_eq!(
        (report.budget, report.reserved, report.allocated),
        (Some(100 << 20), 90 << 20, 90 << 20)
    );
    assert_eq!(
        report.helps,
        [
            Help::RaiseBudget { bytes: 10 << 20 },
            Help::SmallerBy { bytes: 10 << 20 }
        ]
    );
    let text = report.to_string();
    assert!(
        text.contains("20.0 MiB requested") && text.contains("budget 100 MiB"),
        "{text}"
    );
    assert_eq!(alloc.stats().num_ooms, 1);
    let _fits = get(&alloc, 10);
}

/// "2.0 MiB free in cache, largest free block 0 B" would be a riddle to whoever reads it at night.
#[test]
fn free_memory_that_a_request_may_not_use_has_no_largest_block_of_nothing() {
    let (_, alloc) = start(100 * MIB, Timeline::Manual, Config::default());
    let _held = alloc.alloc::<u8>(512, S).unwrap();
    let report = fails(&alloc, 200);
    assert_eq!((report.largest_free, report.total_free), (0, (2 << 20) - 512));
    let text = report.to_string();
    assert!(
        text.contains("2.0 MiB free in cache, none of it for such a request; what"),
        "{text}"
    );
    let (_, alloc) = start(100 * MIB, Timeline::Manual, Config::default());
    let text = fails(&alloc, 200).to_string();
    assert!(
        text.contains("0 B free in cache, largest free block 0 B; what"),
        "{text}"
    );
}

#[test]
fn a_budget_that_is_raised_by_what_is_said_suffices() {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        let (_, alloc) = start(
            1000 * MIB,
            Timeline::Manual,
            Config {
                budget: Some(1 << 20),
                segments,
                ..Config::default()
            },
        );
        let mut held = Vec::new();
        for bytes in [32 << 10, 3 * MIB, 15 * MIB, 63 * MIB + 1000, 700 << 10] {
            let report = match alloc.alloc::<u8>(bytes, S) {
                Err(Error::OutOfMemory(report)) => report,
                // The last had more than it needed.
                Ok(buffer) => {
                    held.push(buffer);
                    continue;
                }
                Err(other) => panic!("{other:?}"),
            };
            let more = report.helps.iter().find_map(|help| match help {
                Help::RaiseBudget { bytes } => Some(*bytes),
                _ => None,
            });
            let more = more.unwrap_or_else(|| panic!("{segments:?}, {bytes}: {report}"));
            assert!(!report.helps.contains(&Help::Exhausted), "{report}");
            alloc.set_budget(Some(alloc.budget().unwrap() + more)).unwrap();
            held.push(
                alloc
                    .alloc(bytes, S)
                    .unwrap_or_else(|error| panic!("{segments:?}: {error}")),
            );
        }
        let report = fails(&alloc, 1001);
        let raise = |help: &Help| matches!(help, Help::RaiseBudget { .. });
        assert!(
            !report.helps.iter().any(raise),
            "the device has no room for that: {report}"
        );
    }
}

#[test]
fn the_report_names_what_would_have_helped() {
    let manual = Config {
        release_on_oom: false,
        segments: SegmentMode::Plain,
        ..Config::default()
    };
    let (sim, alloc) = start(100 * MIB, Timeline::Manual, manual.clone());
    let (a, _b) = (get(&alloc, 40), get(&alloc, 40));
    drop(a);
    let report = fails(&alloc, 50);
    assert_eq!(
        (report.largest_free, report.total_free, report.device_free),
        (40 << 20, 40 << 20, Some(20 << 20))
    );
    assert_eq!(
        report.helps,
        [
            Help::ReleaseCache { bytes: 40 << 20 },
            Help::SmallerBy { bytes: 10 << 20 }
        ]
    );
    assert_eq!(alloc.release_cached().unwrap(), 40 << 20);
    let _now_it_fits = get(&alloc, 50);

    sim.set_used_by_others(10 << 20);
    assert_eq!(fails(&alloc, 2).helps, [Help::Exhausted], "full to the last page");

    let (_, alloc) = start(
        100 * MIB,
        Timeline::Manual,
        Config {
            segments: SegmentMode::Virtual,
            ..manual
        },
    );
    let mut blocks: Vec<_> = (0..10).map(|_| Some(get(&alloc, 10))).collect();
    blocks.iter_mut().step_by(2).for_each(|block| *block = None);
    let report = fails(&alloc, 30);
    assert!(report.helps.contains(&Help::JoinHoles { bytes: 50 << 20 }), "{report}");
    assert!(
        report.helps.contains(&Help::ReleaseCache { bytes: 50 << 20 }),
        "{report}"
    );
    alloc.join_holes(30 << 20, S).unwrap();
    let _now_it_fits = get(&alloc, 30);
}

#[test]
fn holes_that_are_too_small_stay_as_they_were() {
    let (sim, alloc) = start(
        100 * MIB,
        Timeline::Manual,
        Config {
            segments: SegmentMode::Virtual,
            ..Config::default()
        },
    );
    let blocks: Vec<_> = (0..4).map(|_| get(&alloc, 10)).collect();
    let calls = sim.total_calls();
    assert!(matches!(
        alloc.join_holes(20 << 20, S),
        Err(Error::HolesTooSmall { requested, available: 0 }) if requested == 20 << 20
    ));
    assert_eq!(sim.total_calls(), calls + 1, "only the wait for the device");
    drop(blocks);
    let (_, plain) = start(100 * MIB, Timeline::Manual, Config::default());
    assert!(matches!(plain.join_holes(1, S), Err(Error::NotVirtual)));
}

#[test]
fn a_reserved_workspace_serves_everything_cut_from_it() {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        let (sim, alloc) = start(
            100 * MIB,
            Timeline::Manual,
            Config {
                segments,
                ..Config::default()
            },
        );
        alloc.reserve(64 << 20, S).unwrap();
        let taken = sim.total_calls();
        let parts: Vec<_> = (0..4).map(|_| get(&alloc, 16)).collect();
        drop(parts);
        let _whole = get(&alloc, 64);
        assert_eq!(sim.total_calls(), taken, "{segments:?}");
    }
}

#[test]
fn the_smaller_of_both_budgets_holds() {
    for (budget, expected) in [(None, 50), (Some(40 << 20), 40), (Some(60 << 20), 50)] {
        let (_, alloc) = start(
            100 * MIB,
            Timeline::Manual,
            Config {
                budget,
                budget_fraction: Some(0.5),
                ..Config::default()
            },
        );
        assert_eq!(fails(&alloc, 60).budget, Some(expected << 20));
    }
}

#[test]
fn settings_that_cannot_work_are_errors() {
    let bad = [
        Config {
            budget: Some(0),
            ..Config::default()
        },
        Config {
            max_chunk: 3 << 20,
            ..Config::default()
        },
        Config {
            history: History::On {
                max_events: (1 << 26) + 1,
                stacks: Stacks::None,
            },
            ..Config::default()
        },
        Config {
            budget_fraction: Some(1.1),
            ..Config::default()
        },
        Config {
            budget_fraction: Some(f64::NAN),
            ..Config::default()
        },
        Config {
            max_split_size: Some(19 << 20),
            ..Config::default()
        },
        Config {
            max_non_split_rounding: 0,
            ..Config::default()
        },
        Config {
            max_split_size: Some(64 << 20),
            segments: SegmentMode::Virtual,
            ..Config::default()
        },
        Config {
            gpu_direct_rdma: Some(true),
            segments: SegmentMode::Plain,
            ..Config::default()
        },
        Config {
            garbage_collection_threshold: Some(1.0),
            budget: Some(64 << 20),
            ..Config::default()
        },
        Config {
            garbage_collection_threshold: Some(0.8),
            budget: Some(64 << 20),
            segments: SegmentMode::Stitched,
            ..Config::default()
        },
    ];
    for config in bad {
        assert!(matches!(
            Allocator::new(Sim::new(SimConfig::default()).device(), config),
            Err(Error::Config { .. })
        ));
    }
    let sim = Sim::new(SimConfig {
        virtual_memory: false,
        ..SimConfig::default()
    });
    let config = Config {
        segments: SegmentMode::Virtual,
        ..Config::default()
    };
    assert!(Allocator::new(sim.device(), config).is_err());
}

#[test]
fn a_budget_below_one_chunk_costs_no_driver_call() {
    let device = device::sim(SimConfig::default());
    let sim = device.as_sim().unwrap().clone();
    let config = Config {
        budget: Some(1 << 20),
        publish: Publish::Off,
        ..Config::default()
    };
    let alloc = Allocator::new(device, config).unwrap();
    assert!(matches!(alloc.alloc::<u8>(512, Stream(1)), Err(Error::OutOfMemory(_))));
    assert_eq!((sim.calls(Call::Reserve), sim.calls(Call::Create)), (0, 0));
}

#[test]
fn a_part_of_the_device_that_is_no_memory_is_an_error() {
    for part in ["budget_fraction:1e-12", "per_process_memory_fraction:1e-300"] {
        let config = Config::parse(part).unwrap();
        let refused = Allocator::new(device::sim(SimConfig::default()), config).unwrap_err();
        assert!(refused.to_string().contains("is no memory"), "{part}: {refused}");
    }
    let (_, alloc) = start(100 * MIB, Timeline::Manual, Config::default());
    let refused = alloc.set_memory_fraction(1e-12).unwrap_err();
    assert!(refused.to_string().contains("is no memory"), "{refused}");
    assert_eq!(alloc.budget(), None);
}

/// New memory comes before stitching only as far as the program once held more: which there may be no room for any more.
#[test]
fn free_pieces_are_stitched_where_there_is_less_memory_than_there_was() {
    for lowered in [true, false] {
        let config = Config {
            max_chunk: 2 << 20,
            ..of(SegmentMode::Stitched)
        };
        let (sim, alloc) = start(100 * MIB, Timeline::Manual, config);
        drop(get(&alloc, 90));
        alloc.release_cached().unwrap();
        match lowered {
            true => alloc.set_budget(Some(20 << 20)).unwrap(),
            false => sim.set_used_by_others(80 << 20),
        }
        let mut held: Vec<_> = (0..6).map(|_| Some(get(&alloc, 3))).collect();
        let _rest = get(&alloc, 2);
        (held[1], held[4]) = (None, None);
        let bytes = sim.live().bytes;
        let served = alloc.alloc::<u8>(6 * MIB, S);
        assert!(served.is_ok(), "a lower budget: {lowered}, {served:?}");
        assert_eq!(sim.live().bytes, bytes, "the cache did not go for it");
    }
}
