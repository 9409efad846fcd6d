//! Reports of requests that only have to wait, and of those that two budgets refuse: what helps, and that it does.

use gpumem_alloc::device::Timeline;
use gpumem_alloc::{Config, Error, Help, Pool, PoolConfig, Route, SegmentMode, Stream};

use crate::common::{MIB, fails, get, start};

const S: Stream = Stream::DEFAULT;

fn refused(pool: &Pool, mib: usize) -> gpumem_alloc::OomReport {
    match pool.alloc::<u8>(mib * MIB, S) {
        Err(Error::OutOfMemory(report)) => *report,
        other => panic!("{other:?}"),
    }
}

/// Blocks that are set aside for requests of their size are free, too.
#[test]
fn a_request_that_is_beyond_all_is_told_of_all_that_is_free() {
    for segments in SegmentMode::ALL {
        let config = Config {
            segments,
            budget: Some(100 << 20),
            ..Config::default()
        };
        let (_, alloc) = start(1000 * MIB, Timeline::Immediate, config);
        for _ in 0..200 {
            let blocks: Vec<_> = (0..90).map(|_| get(&alloc, 1)).collect();
            drop(blocks);
        }
        let reserved = alloc.stats().all().reserved_bytes.current;
        let report = fails(&alloc, 120);
        assert_eq!(report.total_free, reserved, "{segments:?}: {report}");
        assert!(
            report.helps.contains(&Help::RaiseBudget { bytes: 20 << 20 }),
            "{segments:?}: {report}"
        );
    }
}

/// While a graph is captured nobody is waited for.
#[test]
fn what_queued_work_or_another_stream_may_use_is_to_be_had_after_the_capture() {
    for segments in SegmentMode::ALL {
        for recorded in [true, false] {
            let config = Config {
                segments,
                ..Config::default()
            };
            let (sim, alloc) = start(100 * MIB, Timeline::Manual, config);
            let graph = alloc.private_pool().unwrap();
            let other = Stream(5);
            let block = alloc.alloc::<u8>(60 * MIB, other).unwrap();
            sim.enqueue(other, block.device_ptr(), block.bytes());
            if recorded {
                block.record_stream(Stream(6)).unwrap();
                sim.enqueue(Stream(6), block.device_ptr(), block.bytes());
            }
            alloc.begin_allocate_to_pool(&graph, Route::Stream(Stream(9))).unwrap();
            drop(block);
            let report = fails(&alloc, 60);
            let help = report.helps[0];
            assert!(
                matches!(help, Help::EndCapture | Help::Wait { capturing: true }),
                "{segments:?}: {report}"
            );
            assert!(
                report.to_string().contains("after the graph's capture has ended"),
                "{report}"
            );
            alloc.end_allocate_to_pool(&graph).unwrap();
            let _now = get(&alloc, 60);
        }
    }
}

/// No block is large enough once the GPU is done, but all that is free then, given back, or stitched.
#[test]
fn what_queued_work_may_use_is_to_be_released_after_the_capture() {
    for segments in SegmentMode::ALL {
        let config = Config {
            segments,
            ..Config::default()
        };
        let (sim, alloc) = start(100 * MIB, Timeline::Manual, config);
        let graph = alloc.private_pool().unwrap();
        let block = alloc.alloc::<u8>(60 * MIB, Stream(5)).unwrap();
        // Where new memory does not go on from what is free.
        let _behind = alloc.alloc::<u8>(2 * MIB, Stream(5)).unwrap();
        block.record_stream(Stream(6)).unwrap();
        sim.enqueue(Stream(6), block.device_ptr(), block.bytes());
        alloc.begin_allocate_to_pool(&graph, Route::Stream(Stream(9))).unwrap();
        drop(block);
        let report = fails(&alloc, 75);
        let help = match segments {
            SegmentMode::Plain | SegmentMode::Virtual => Help::EndCapture,
            // It is stitched with what is new.
            _ => Help::Wait { capturing: true },
        };
        assert_eq!(report.helps[0], help, "{segments:?}: {report}");
        alloc.end_allocate_to_pool(&graph).unwrap();
        sim.finish(Stream(6));
        let _now = get(&alloc, 75);
    }
}

/// Graphs that were captured may still use it.
#[test]
fn what_is_free_of_a_graphs_pool_is_not_to_be_released_after_the_capture() {
    for segments in SegmentMode::ALL {
        let config = Config {
            segments,
            ..Config::default()
        };
        let (_, alloc) = start(100 * MIB, Timeline::Immediate, config);
        let graph = alloc.private_pool().unwrap();
        alloc.begin_allocate_to_pool(&graph, Route::Stream(Stream(9))).unwrap();
        drop(alloc.alloc::<u8>(60 * MIB, Stream(9)).unwrap());
        let report = fails(&alloc, 90);
        assert_eq!(
            report.helps,
            [Help::SmallerBy { bytes: 50 << 20 }],
            "{segments:?}: {report}"
        );
        alloc.end_allocate_to_pool(&graph).unwrap();
    }
}

#[test]
fn where_the_cache_is_kept_waiting_for_the_gpu_may_be_enough() {
    for segments in SegmentMode::ALL {
        let config = Config {
            segments,
            release_on_oom: false,
            cross_stream_reuse: true,
            ..Config::default()
        };
        let (sim, alloc) = start(100 * MIB, Timeline::Manual, config);
        let block = alloc.alloc::<u8>(100 * MIB, Stream(5)).unwrap();
        block.record_stream(Stream(6)).unwrap();
        sim.enqueue(Stream(6), block.device_ptr(), block.bytes());
        drop(block);
        let report = fails(&alloc, 60);
        assert_eq!(
            report.helps,
            [Help::Wait { capturing: false }],
            "{segments:?}: {report}"
        );
        sim.finish(Stream(6));
        let _now = get(&alloc, 60);
    }
}

#[test]
fn two_budgets_that_both_refuse_are_both_to_be_raised() {
    for segments in SegmentMode::ALL {
        let config = Config {
            segments,
            budget: Some(64 << 20),
            ..Config::default()
        };
        let (_, alloc) = start(1000 * MIB, Timeline::Immediate, config);
        let budget = Some(32 << 20);
        let tenant = alloc
            .pool(
                "tenant",
                PoolConfig {
                    budget,
                    ..PoolConfig::default()
                },
            )
            .unwrap();
        let _others = get(&alloc, 32);
        let _its = tenant.alloc::<u8>(32 * MIB, S).unwrap();
        let report = refused(&tenant, 8);
        let raise = Help::RaiseBudgets {
            pool: 8 << 20,
            all: 8 << 20,
        };
        assert_eq!(report.helps, [raise], "{segments:?}: {report}");
        tenant.set_budget(Some(40 << 20)).unwrap();
        assert!(matches!(refused(&tenant, 8).helps[..], [Help::RaiseBudget { .. }, ..]));
        alloc.set_budget(Some(72 << 20)).unwrap();
        let _now = tenant.alloc::<u8>(8 * MIB, S).unwrap();
    }
}
