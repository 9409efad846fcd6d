//! Pools on the simulated device: isolation, budgets, overflow, priorities, and what a graph goes on using.

use std::sync::Arc;

use gpumem_alloc::device::{self, Call, Live, Sim, SimConfig};
use gpumem_alloc::{
    Allocator, Config, Error, Help, MempoolId, Overflow, Pool, PoolConfig, Publish, Route, SegmentMode, Stream,
};

use crate::common::short;

const MIB: usize = 1 << 20;
const S: Stream = Stream(1);

fn allocator(total_mib: u64, segments: SegmentMode) -> (Allocator, Sim) {
    let device = device::sim(SimConfig {
        total: total_mib << 20,
        ..SimConfig::default()
    });
    let sim = device.as_sim().unwrap().clone();
    let config = Config {
        publish: Publish::Off,
        segments,
        cross_stream_reuse: true,
        ..Config::default()
    };
    (Allocator::new(device, config).unwrap(), sim)
}

/// What was used last is most likely what is used next.
#[test]
fn a_lower_budget_takes_no_more_than_is_beyond_it_and_what_was_idle_for_longest_first() {
    let (alloc, sim) = allocator(1000, SegmentMode::Stitched);
    let pool = alloc.pool("tenant", PoolConfig::default()).unwrap();
    let buffers: Vec<_> = (0..10).map(|_| pool.alloc::<u8>(20 * MIB, S).unwrap()).collect();
    let addrs: Vec<u64> = buffers.iter().map(|buffer| buffer.device_ptr()).collect();
    drop(buffers);
    pool.set_budget(Some(190 << 20)).unwrap();
    assert_eq!(pool.stats().reserved_bytes.current, 180 << 20);
    pool.set_budget(Some(140 << 20)).unwrap();
    assert_eq!(
        (pool.stats().reserved_bytes.current, sim.live().allocations),
        (140 << 20, 7)
    );
    let left: Vec<_> = (0..7).map(|_| pool.alloc::<u8>(20 * MIB, S).unwrap()).collect();
    assert!(left.iter().all(|buffer| addrs[3..].contains(&buffer.device_ptr())));
}

#[test]
fn what_a_tenant_cached_serves_nobody_else() {
    for mode in SegmentMode::ALL {
        let (alloc, _) = allocator(1000, mode);
        let [a, b] = ["a", "b"].map(|name| alloc.pool(name, PoolConfig::default()).unwrap());
        let buffer = a.alloc::<u8>(30 * MIB, S).unwrap();
        let addr = buffer.device_ptr();
        drop(buffer);
        let others = [
            b.alloc::<u8>(30 * MIB, S).unwrap(),
            alloc.alloc::<u8>(30 * MIB, S).unwrap(),
        ];
        assert!(others.iter().all(|other| other.device_ptr() != addr));
        assert_eq!(a.alloc::<u8>(30 * MIB, S).unwrap().device_ptr(), addr);
        let figures = a.stats();
        assert_eq!(figures.reserved_bytes.current, 30 << 20);
        assert_eq!(
            (figures.allocated_bytes.current, figures.allocated_bytes.peak),
            (0, 30 << 20)
        );
        assert_eq!(figures.allocation.allocated, 2);
        assert_eq!(
            alloc.stats().all().reserved_bytes.current,
            90 << 20,
            "the allocator's figures are of all"
        );
        assert_eq!(a.release_cached().unwrap(), 30 << 20);
        assert_eq!(a.stats().reserved_bytes.current, 0);
    }
}

#[test]
fn a_budget_binds_and_may_overflow() {
    let (alloc, _) = allocator(1000, SegmentMode::Stitched);
    let config = |overflow| PoolConfig {
        budget: Some(40 << 20),
        overflow,
        ..PoolConfig::default()
    };
    let strict = alloc.pool("strict", config(Overflow::Refuse)).unwrap();
    let _held = strict.alloc::<u8>(30 * MIB, S).unwrap();
    let report = short(strict.alloc::<u8>(20 * MIB, S));
    let pool = report.pool.as_ref().unwrap();
    assert_eq!(
        (pool.name.as_str(), pool.budget, pool.reserved),
        ("strict", Some(40 << 20), 30 << 20)
    );
    assert_eq!(report.helps[0], Help::RaisePoolBudget { bytes: 10 << 20 });
    let text = report.to_string();
    let words =
        "20.0 MiB requested in pool strict (budget 40.0 MiB (10.0 MiB left), reserved 30.0 MiB, allocated 30.0 MiB)";
    assert!(
        text.contains(words) && text.contains("raise the pool's budget by 10.0 MiB"),
        "{text}"
    );
    let soft = alloc.pool("soft", config(Overflow::Shared)).unwrap();
    let _held = soft.alloc::<u8>(30 * MIB, S).unwrap();
    let _over = soft.alloc::<u8>(20 * MIB, S).unwrap();
    let figures = soft.stats();
    assert_eq!((figures.num_overflows, figures.reserved_bytes.peak), (1, 30 << 20));
    assert_eq!((strict.stats().num_ooms, figures.num_ooms), (1, 0));
}

#[test]
fn who_finds_no_memory_is_told_of_a_private_pool_by_what_it_is_known_by() {
    let (alloc, _) = allocator(100, SegmentMode::Stitched);
    let told = |pool: &Pool| short(pool.alloc::<u8>(200 * MIB, S)).to_string();
    let ours = told(&alloc.private_pool().unwrap());
    assert!(ours.contains("requested in private pool 1 (reserved"), "{ours}");
    let theirs = told(&alloc.private_pool_with_id(MempoolId(7, 1)).unwrap());
    assert!(theirs.contains("requested in pool (7, 1) (reserved"), "{theirs}");
}

#[test]
fn the_budget_of_a_pool_can_change() {
    let (alloc, sim) = allocator(1000, SegmentMode::Stitched);
    let budget = Some(40 << 20);
    let pool = alloc
        .pool(
            "tenant",
            PoolConfig {
                budget,
                ..PoolConfig::default()
            },
        )
        .unwrap();
    let held = pool.alloc::<u8>(30 * MIB, S).unwrap();
    let report = short(pool.alloc::<u8>(20 * MIB, S));
    assert_eq!(report.helps[0], Help::RaisePoolBudget { bytes: 10 << 20 });
    pool.set_budget(Some(50 << 20)).unwrap();
    assert_eq!((pool.budget(), pool.clone().budget()), (Some(50 << 20), Some(50 << 20)));
    let more = pool.alloc::<u8>(20 * MIB, S).unwrap();
    drop(more);
    // What is free goes at once, what is held does not, and nothing is added.
    pool.set_budget(Some(16 << 20)).unwrap();
    assert_eq!(
        (pool.stats().reserved_bytes.current, sim.live().bytes),
        (30 << 20, 30 << 20)
    );
    let report = short(pool.alloc::<u8>(20 * MIB, S));
    assert_eq!(report.helps[0], Help::RaisePoolBudget { bytes: 34 << 20 });
    pool.set_budget(Some((16 + 34) << 20)).unwrap();
    drop(pool.alloc::<u8>(20 * MIB, S).unwrap());
    assert!(matches!(pool.set_budget(Some(0)), Err(Error::Config { .. })));
    assert_eq!(pool.budget(), Some((16 + 34) << 20), "what cannot be changes nothing");
    pool.set_budget(None).unwrap();
    assert_eq!(pool.budget(), None);
    drop(pool.alloc::<u8>(500 * MIB, S).unwrap());
    drop(held);
}

/// What such a request may have outside of its pool counts.
#[test]
fn a_request_that_may_overflow_is_told_what_helps_outside() {
    for mode in SegmentMode::ALL {
        let (alloc, _) = allocator(100, mode);
        let config = PoolConfig {
            budget: Some(8 << 20),
            overflow: Overflow::Shared,
            ..PoolConfig::default()
        };
        let soft = alloc.pool("soft", config).unwrap();
        let _full = soft.alloc::<u8>(8 * MIB, S).unwrap();
        let held = alloc.alloc::<u8>(40 * MIB, S).unwrap();
        let report = short(soft.alloc::<u8>(60 * MIB, S));
        assert_eq!(report.helps, [Help::SmallerBy { bytes: 8 << 20 }], "{mode:?}: {report}");
        drop(soft.alloc::<u8>(52 * MIB, S).unwrap());
        // Nothing may go back meanwhile, and the largest block is one of everybody's.
        let graph = alloc.private_pool().unwrap();
        alloc.begin_allocate_to_pool(&graph, Route::Stream(Stream(99))).unwrap();
        drop(held);
        let report = short(soft.alloc::<u8>(96 * MIB, S));
        assert!(report.largest_free >= 40 << 20, "{mode:?}: {report}");
        assert!(
            matches!(report.helps.last(), Some(Help::SmallerBy { bytes }) if *bytes <= 56 << 20),
            "{mode:?}: {report}"
        );
    }
}

#[test]
fn the_least_important_give_their_caches_back_first() {
    let (alloc, sim) = allocator(100, SegmentMode::Plain);
    let pool = |name: &str, priority| {
        let config = PoolConfig {
            priority,
            ..PoolConfig::default()
        };
        alloc.pool(name, config).unwrap()
    };
    let [low, middle, equal, high] = [("low", -2), ("middle", -1), ("equal", 5), ("high", 5)].map(|(n, p)| pool(n, p));
    for pool in [&low, &middle, &equal] {
        drop(pool.alloc::<u8>(30 * MIB, S).unwrap());
    }
    let reserved = || [&low, &middle, &equal].map(|pool| pool.stats().reserved_bytes.current >> 20);
    assert_eq!(reserved(), [30, 30, 30]);
    let first = high.alloc::<u8>(30 * MIB, S).unwrap();
    assert_eq!(reserved(), [0, 30, 30]);
    let second = high.alloc::<u8>(30 * MIB, S).unwrap();
    assert_eq!(reserved(), [0, 0, 30]);
    let report = short(high.alloc::<u8>(30 * MIB, S));
    assert_eq!(reserved(), [0, 0, 30], "the same priority is left alone");
    assert_eq!(report.helps[0], Help::ReleasePools { bytes: 30 << 20 });
    drop((first, second));
    // Live blocks are never taken.
    let held = low.alloc::<u8>(5 * MIB, S).unwrap();
    short(high.alloc::<u8>(70 * MIB, S));
    assert_eq!(low.stats().allocated_bytes.current, held.allocated_bytes());
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[test]
fn what_overflows_matters_as_much_as_its_pool() {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        for (priority, other, has_room) in [(10, 5, true), (-5, -1, false), (3, 3, false)] {
            let (alloc, sim) = allocator(100, segments);
            let config = PoolConfig {
                budget: Some(20 << 20),
                overflow: Overflow::Shared,
                priority,
            };
            let pool = alloc.pool("small", config).unwrap();
            let config = PoolConfig {
                priority: other,
                ..PoolConfig::default()
            };
            let cache = alloc.pool("cache", config).unwrap();
            let _held = pool.alloc::<u8>(20 * MIB, S).unwrap();
            drop(cache.alloc::<u8>(70 * MIB, S).unwrap());
            let result = pool.alloc::<u8>(30 * MIB, S);
            assert_eq!(result.is_ok(), has_room, "{segments:?}: {priority} beside {other}");
            let left = cache.stats().reserved_bytes.current >> 20;
            assert_eq!(left, if has_room { 0 } else { 70 });
            assert_eq!(sim.violations(), [""; 0]);
        }
    }
}

#[test]
fn what_a_graph_uses_stays_until_its_pool_is_gone() {
    for mode in SegmentMode::ALL {
        let (alloc, sim) = allocator(200, mode);
        let pool = alloc.private_pool().unwrap();
        let filter: Arc<dyn Fn(Stream) -> bool + Send + Sync> = Arc::new(|stream| stream == S);
        alloc.begin_allocate_to_pool(&pool, Route::Filter(filter)).unwrap();
        let before = [Call::Record, Call::Query, Call::Synchronize].map(|call| sim.calls(call));
        let captured = alloc.alloc::<u8>(40 * MIB, S).unwrap();
        captured.record_stream(Stream(2)).unwrap();
        let addr = captured.device_ptr();
        drop(captured);
        let raw = alloc.alloc_raw(MIB as u64, S).unwrap();
        let other = alloc.alloc::<u8>(10 * MIB, Stream(2)).unwrap();
        assert!(matches!(alloc.release_cached(), Err(Error::Capturing)));
        assert_eq!(
            [Call::Record, Call::Query, Call::Synchronize].map(|call| sim.calls(call)),
            before
        );
        assert_eq!(pool.stats().allocation.allocated, 2, "the other stream is not captured");
        assert!(alloc.end_allocate_to_pool(&pool).unwrap());
        assert!(!alloc.end_allocate_to_pool(&pool).unwrap());

        // The graph is replayed now; others want memory.
        alloc.free_raw(raw).unwrap();
        let reserved = pool.stats().reserved_bytes.current;
        alloc.release_cached().unwrap();
        alloc.compact().unwrap();
        let _ = alloc.join_holes(20 << 20, S);
        short(alloc.alloc::<u8>(180 * MIB, S));
        assert_eq!(pool.stats().reserved_bytes.current, reserved);
        let others: Vec<_> = (0..10).filter_map(|_| alloc.alloc::<u8>(10 * MIB, S).ok()).collect();
        assert!(
            others
                .iter()
                .all(|other| !(addr..addr + (40 << 20)).contains(&other.device_ptr()))
        );
        assert_eq!(
            pool.alloc::<u8>(40 * MIB, S).unwrap().device_ptr(),
            addr,
            "the graph's next one has it"
        );

        let held = pool.alloc::<u8>(40 * MIB, S).unwrap();
        drop(pool);
        assert_eq!(alloc.stats().all().allocation.current, others.len() as u64 + 2);
        let before = sim.live().bytes;
        drop(held);
        assert!(before - sim.live().bytes >= 40 << 20, "the last block gives it back");
        drop((others, other, alloc));
        assert_eq!((sim.live(), sim.violations()), (Live::default(), Vec::new()));
    }
}

/// A block that no event could be recorded for is waited for by what follows it on its stream: a program that captures graphs once and then
/// goes on for days has its memory back.
#[test]
fn what_was_freed_while_a_graph_was_captured_holds_up_nothing_afterwards() {
    let (alloc, sim) = allocator(1000, SegmentMode::Plain);
    let pool = alloc.private_pool().unwrap();
    let used_elsewhere = || {
        let buffer = alloc.alloc::<u8>(30 * MIB, S).unwrap();
        buffer.record_stream(Stream(2)).unwrap();
    };
    alloc.begin_allocate_to_pool(&pool, Route::Stream(Stream(9))).unwrap();
    used_elsewhere();
    // The end of the capture has an event recorded for it; without that one the next one counts.
    sim.fail_next(Call::Record, 1);
    assert!(alloc.end_allocate_to_pool(&pool).unwrap());
    assert_eq!(alloc.stats().all().active.current, 1);
    (0..20).for_each(|_| used_elsewhere());
    let all = alloc.stats().all();
    assert_eq!((all.active.current, all.reserved_bytes.current), (0, 60 << 20));
    assert_eq!(sim.calls(Call::Synchronize), 0);
    // Nor does one for which the driver refuses it, or cannot say how far it is.
    for call in [Call::Record, Call::Query] {
        sim.fail_next(call, 1);
        used_elsewhere();
        assert_eq!(alloc.stats().all().active.current, 1);
        used_elsewhere();
        assert_eq!(alloc.stats().all().active.current, 0);
    }
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[test]
fn routes_are_of_a_thread_or_a_stream_and_the_newest_counts() {
    let (alloc, _) = allocator(1000, SegmentMode::Plain);
    let [a, b] = ["a", "b"].map(|name| alloc.pool(name, PoolConfig::default()).unwrap());
    let held = || [a.stats().allocation.current, b.stats().allocation.current];
    alloc.begin_allocate_to_pool(&a, Route::ThisThread).unwrap();
    let _in_a = alloc.alloc::<u8>(1, S).unwrap();
    assert_eq!(held(), [1, 0]);
    std::thread::scope(|scope| {
        scope.spawn(|| std::mem::forget(alloc.alloc::<u8>(1, S).unwrap()));
    });
    assert_eq!(held(), [1, 0]);
    alloc.begin_allocate_to_pool(&b, Route::Stream(S)).unwrap();
    let _in_b = alloc.alloc::<u8>(1, S).unwrap();
    let _in_a = alloc.alloc::<u8>(1, Stream(9)).unwrap();
    assert_eq!(held(), [2, 1]);
    // A pool that goes ends its routes.
    drop(b);
    let _in_a = alloc.alloc::<u8>(1, S).unwrap();
    assert_eq!(a.stats().allocation.current, 3);
    assert!(alloc.end_allocate_to_pool(&a).unwrap());
    let _outside = alloc.alloc::<u8>(1, S).unwrap();
    assert_eq!(a.stats().allocation.current, 3);
    let (other, _) = allocator(1000, SegmentMode::Plain);
    assert!(other.begin_allocate_to_pool(&a, Route::ThisThread).is_err());
}

/// An error on the way drops them in no order, and one may have been ended by hand.
#[test]
fn guards_end_what_they_began_and_nothing_else() {
    let (alloc, _) = allocator(1024, SegmentMode::Plain);
    let pool = alloc.private_pool().unwrap();
    let within = |pool: &Pool, stream| {
        let before = pool.stats().allocation.current;
        let _buffer = alloc.alloc::<u8>(512, Stream(stream)).unwrap();
        pool.stats().allocation.current > before
    };
    let first = pool.serve(Route::Stream(Stream(1))).unwrap();
    let second = pool.serve(Route::Stream(Stream(2))).unwrap();
    assert_eq!([1, 2, 3].map(|stream| within(&pool, stream)), [true, true, false]);
    std::thread::scope(|scope| scope.spawn(|| drop(first)).join().unwrap());
    assert_eq!([1, 2].map(|stream| within(&pool, stream)), [false, true]);
    assert!(
        matches!(alloc.release_cached(), Err(Error::Capturing)),
        "the other one goes on"
    );
    assert!(alloc.end_allocate_to_pool(&pool).unwrap());
    alloc.release_cached().unwrap();
    // Ended by hand: what began since is not its own.
    alloc.begin_allocate_to_pool(&pool, Route::Stream(Stream(2))).unwrap();
    drop(second);
    assert!(within(&pool, 2));
    assert!(alloc.end_allocate_to_pool(&pool).unwrap());
    assert!(!alloc.end_allocate_to_pool(&pool).unwrap());
    alloc.release_cached().unwrap();
}

/// As a capture that failed leaves it. On the thread that began it that is sure, on others once somebody has seen it begin.
#[test]
fn a_captures_route_ends_with_it() {
    let (alloc, sim) = allocator(1024, SegmentMode::Plain);
    let pool = alloc.private_pool().unwrap();
    let (captured, other) = (Stream(7), Stream(8));
    let begin = || {
        let filter: Arc<dyn Fn(Stream) -> bool + Send + Sync> = Arc::new(move |stream| stream == captured);
        let route = Route::Capture {
            stream: captured,
            lasts: true,
            filter,
        };
        alloc.begin_allocate_to_pool(&pool, route).unwrap();
    };
    let within = |stream| {
        let before = pool.stats().allocation.current;
        let _buffer = alloc.alloc::<u8>(512, stream).unwrap();
        pool.stats().allocation.current > before
    };
    let elsewhere = |work: &(dyn Fn() + Sync)| std::thread::scope(|scope| scope.spawn(work).join().unwrap());
    let captures = || matches!(alloc.release_cached(), Err(Error::Capturing));
    for seen in [false, true] {
        begin();
        elsewhere(&|| assert!(!within(captured) && captures(), "it has not begun"));
        sim.capture(captured, true);
        if seen {
            elsewhere(&|| assert!(within(captured)));
            assert!(!within(other) && captures());
        }
        sim.capture(captured, false);
        elsewhere(&|| assert!(!within(captured) && captures() != seen));
        assert!(!within(captured) && !captures());
        elsewhere(&|| assert_eq!(alloc.forget_lost_captures(), []));
        assert_eq!(alloc.forget_lost_captures(), [pool.id()]);
        assert_eq!(alloc.forget_lost_captures(), []);
        assert!(!alloc.end_allocate_to_pool(&pool).unwrap());
    }
    // The stream is captured once more, for nobody here.
    begin();
    assert!(!captures());
    sim.capture(captured, true);
    assert!(!within(captured));
    // Ended after all, by who was about to.
    assert!(alloc.end_allocate_to_pool(&pool).unwrap());
    assert!(!captures());
    begin();
    assert!(within(captured) && alloc.end_allocate_to_pool(&pool).unwrap() && !captures());
    assert_eq!((sim.capturing(), sim.violations()), (0, Vec::<String>::new()));
}

#[test]
fn pools_that_cannot_be_are_errors() {
    let (alloc, _) = allocator(1000, SegmentMode::Plain);
    let refused = |name: &str, budget, words: &str| {
        let config = PoolConfig {
            budget,
            ..PoolConfig::default()
        };
        let error = alloc.pool(name, config).unwrap_err().to_string();
        assert!(error.starts_with("pool: ") && error.contains(words), "{error}");
    };
    refused("nothing", Some(0), "0 bytes leave no room");
    refused("", None, "a pool needs a name");
    let first = alloc.pool("first", PoolConfig::default()).unwrap();
    refused("first", None, "there is a pool named first already");
    drop(first);
    // What a terminal would heed is not told.
    let name = "a\x1b[31m\nb\u{202e}c";
    let shown = "a\u{fffd}[31m\u{fffd}b\u{fffd}c";
    let first = alloc.pool(name, PoolConfig::default()).unwrap();
    refused(name, None, &format!("there is a pool named {shown} already"));
    refused(name, Some(0), &format!("{shown}: 0 bytes"));
    let error = first.set_budget(Some(0)).unwrap_err().to_string();
    assert!(error.contains(&format!("{shown}: 0 bytes")), "{error}");
    drop(first);
    // Names, arenas and streams are used again: many more pools than fit at the same time.
    for round in 0..3000 {
        let pool = alloc.pool("first", PoolConfig::default()).unwrap();
        let _held = pool.alloc::<u8>(1000, Stream(round)).unwrap();
    }
    let all: Vec<_> = (0..1024).map(|_| alloc.private_pool().unwrap()).collect();
    refused("one more", None, "there are 1024 pools already");
    refused(name, None, &format!("{shown}: there are 1024 pools"));
    drop(all);
    assert_eq!(alloc.stats().all().reserved_bytes.current, 0);
}
