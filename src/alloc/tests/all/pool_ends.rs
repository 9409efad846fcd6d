//! Pools, routes and captures that begin and end while other threads are on their way through them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use gpumem_alloc::device::{self, Call, Live, Sim, SimConfig, Timeline};
use gpumem_alloc::{Allocator, Config, Error, MempoolId, PoolConfig, Publish, Route, SegmentMode, Stream};

const MIB: usize = 1 << 20;

fn allocator(timeline: Timeline) -> (Allocator, Sim) {
    let device = device::sim(SimConfig {
        timeline,
        ..SimConfig::default()
    });
    let sim = device.as_sim().unwrap().clone();
    let config = Config {
        publish: Publish::Off,
        segments: SegmentMode::Plain,
        cross_stream_reuse: true,
        ..Config::default()
    };
    (Allocator::new(device, config).unwrap(), sim)
}

/// The request was sent to a pool that is gone when the driver has served it, and whose number another tenant would have by then.
#[test]
fn what_was_on_its_way_to_a_pool_that_ends_is_no_other_tenants() {
    let (alloc, sim) = allocator(Timeline::Immediate);
    let pool = alloc.pool("old", PoolConfig::default()).unwrap();
    alloc.begin_allocate_to_pool(&pool, Route::Stream(Stream(3))).unwrap();
    let pause = sim.pause(Call::Alloc);
    let (buffer, other) = std::thread::scope(|scope| {
        let request = scope.spawn(|| alloc.alloc::<u8>(5 * MIB, Stream(3)).unwrap());
        pause.wait();
        assert!(alloc.end_allocate_to_pool(&pool).unwrap());
        drop(pool);
        let config = PoolConfig {
            budget: Some(20 << 20),
            ..PoolConfig::default()
        };
        let other = alloc.pool("other tenant", config).unwrap();
        drop(pause);
        (request.join().unwrap(), other)
    });
    let figures = other.stats();
    assert_eq!(
        (figures.reserved_bytes.current, figures.allocated_bytes.current),
        (0, 0)
    );
    drop(other.alloc::<u8>(18 * MIB, Stream(1)).unwrap());
    drop(buffer);
    assert_eq!(other.stats().allocation.current, 0);
    drop(other);
    alloc.release_cached().unwrap();
    assert_eq!(
        (alloc.stats().all().reserved_bytes.current, sim.live()),
        (0, Live::default())
    );
}

/// A request that was sent to a pool keeps its memory, and not its name.
#[test]
fn a_pool_may_have_the_name_and_id_of_one_that_is_gone_whatever_is_on_its_way_there() {
    let (alloc, sim) = allocator(Timeline::Immediate);
    let named = |alloc: &Allocator| alloc.pool("tenant", PoolConfig::default());
    let numbered = |alloc: &Allocator| alloc.private_pool_with_id(MempoolId(3, 1));
    let [first, second] = [named(&alloc), numbered(&alloc)].map(Result::unwrap);
    for (pool, again) in [(first, &named as &dyn Fn(&Allocator) -> _), (second, &numbered)] {
        alloc.begin_allocate_to_pool(&pool, Route::Stream(Stream(3))).unwrap();
        let pause = sim.pause(Call::Alloc);
        let (buffer, next) = std::thread::scope(|scope| {
            let request = scope.spawn(|| alloc.alloc::<u8>(5 * MIB, Stream(3)).unwrap());
            pause.wait();
            let (name, id) = (pool.name().to_owned(), pool.id());
            drop(pool);
            let next = again(&alloc).unwrap();
            assert!(again(&alloc).is_err(), "that one is there");
            assert!(next.id() == id || next.name() == name);
            drop(pause);
            (request.join().unwrap(), next)
        });
        assert_eq!(next.stats().allocation.allocated, 0);
        drop((buffer, next));
    }
    alloc.release_cached().unwrap();
    assert_eq!(
        (alloc.stats().all().reserved_bytes.current, sim.live()),
        (0, Live::default())
    );
}

/// It may look at something that the program destroys after that.
#[test]
fn nobody_is_in_a_filter_once_its_route_has_ended() {
    let (alloc, _) = allocator(Timeline::Immediate);
    let pool = alloc.pool("pool", PoolConfig::default()).unwrap();
    let (meeting, inside) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
    let filter = {
        let (meeting, inside) = (Arc::clone(&meeting), Arc::clone(&inside));
        move |_| {
            inside.store(true, Ordering::SeqCst);
            meeting.wait();
            std::thread::sleep(Duration::from_millis(50));
            inside.store(false, Ordering::SeqCst);
            true
        }
    };
    alloc
        .begin_allocate_to_pool(&pool, Route::Filter(Arc::new(filter)))
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| alloc.alloc::<u8>(MIB, Stream(3)).unwrap());
        meeting.wait();
        assert!(alloc.end_allocate_to_pool(&pool).unwrap());
        assert!(!inside.load(Ordering::SeqCst));
    });
}

/// One device, two allocators: what the driver is told is of both.
#[test]
fn a_capture_goes_on_while_another_allocator_of_its_device_goes() {
    let (one, sim) = allocator(Timeline::Immediate);
    let config = Config {
        publish: Publish::Off,
        cross_stream_reuse: true,
        ..Config::default()
    };
    let two = Allocator::new(one.device().clone(), config).unwrap();
    let pool = one.private_pool().unwrap();
    one.begin_allocate_to_pool(&pool, Route::ThisThread).unwrap();
    drop(two);
    assert_eq!(sim.capturing(), 1);
    one.end_allocate_to_pool(&pool).unwrap();
    assert_eq!(sim.capturing(), 0);
}

/// What begins a capture waits for its turn, and somebody ends it meanwhile.
#[test]
fn a_capture_that_has_not_begun_cannot_be_ended() {
    let (alloc, sim) = allocator(Timeline::Immediate);
    let pool = alloc.private_pool().unwrap();
    let pause = sim.pause(Call::Alloc);
    std::thread::scope(|scope| {
        scope.spawn(|| alloc.alloc::<u8>(40 * MIB, Stream(1)).unwrap());
        pause.wait();
        scope.spawn(|| alloc.begin_allocate_to_pool(&pool, Route::Stream(Stream(7))).unwrap());
        // Long enough for it to wait in most runs; in the others there is nothing to see.
        std::thread::sleep(Duration::from_millis(100));
        assert!(!alloc.end_allocate_to_pool(&pool).unwrap());
        drop(pause);
    });
    assert!(matches!(alloc.release_cached(), Err(Error::Capturing)));
    assert!(alloc.end_allocate_to_pool(&pool).unwrap());
    assert_eq!(alloc.release_cached().unwrap(), 40 << 20);
}

#[test]
fn a_filter_may_own_the_last_of_another_pool() {
    let (alloc, _) = allocator(Timeline::Immediate);
    let [pool, other] = ["pool", "other"].map(|name| alloc.pool(name, PoolConfig::default()).unwrap());
    let filter = move |stream| other.name().is_empty() || stream == Stream(3);
    alloc
        .begin_allocate_to_pool(&pool, Route::Filter(Arc::new(filter)))
        .unwrap();
    let (done, ended) = std::sync::mpsc::channel();
    // Not joined: it would wait for itself for ever.
    let thread = {
        let (alloc, pool) = (alloc.clone(), pool.clone());
        std::thread::spawn(move || done.send(alloc.end_allocate_to_pool(&pool).unwrap()))
    };
    assert!(
        ended.recv_timeout(Duration::from_secs(30)).unwrap(),
        "it does not come back"
    );
    thread.join().unwrap().unwrap();
    drop(alloc.pool("other", PoolConfig::default()).unwrap());
}

/// A buffer of a stream that has ended is read and written once the device was waited for.
#[test]
fn nobody_waits_for_a_stream_that_has_ended_while_a_graph_is_captured() {
    let (alloc, sim) = allocator(Timeline::Manual);
    let mut buffer = alloc.alloc::<u8>(4096, Stream(5)).unwrap();
    sim.enqueue(Stream(5), buffer.device_ptr(), 4096);
    alloc.retire_stream(Stream(5)).unwrap();
    let pool = alloc.private_pool().unwrap();
    alloc.begin_allocate_to_pool(&pool, Route::Stream(Stream(9))).unwrap();
    let mut values = vec![0; 4096];
    assert!(matches!(buffer.read(&mut values), Err(Error::Capturing)));
    assert!(matches!(buffer.write(&values), Err(Error::Capturing)));
    assert!(matches!(buffer.fill_words(7), Err(Error::Capturing)));
    assert_eq!(sim.violations(), [""; 0]);
    alloc.end_allocate_to_pool(&pool).unwrap();
    buffer.fill_words(0x0707_0707).unwrap();
    buffer.read(&mut values).unwrap();
    assert_eq!(values, [7; 4096]);
    assert_eq!(sim.violations(), [""; 0]);
}

/// Memory that other streams used in captures, of which each has a pool of its own: as much of it as there may be pools, and more.
#[test]
fn pools_that_are_gone_leave_nothing_that_other_streams_used_while_a_graph_was_captured() {
    for (timeline, late) in [(Timeline::Immediate, false), (Timeline::Manual, true)] {
        let (alloc, sim) = allocator(timeline);
        for _ in 0..1100 {
            let pool = alloc.private_pool().unwrap();
            alloc.begin_allocate_to_pool(&pool, Route::ThisThread).unwrap();
            let buffer = alloc.alloc::<u8>(MIB, Stream(1)).unwrap();
            buffer.record_stream(Stream(2)).unwrap();
            sim.enqueue(Stream(2), buffer.device_ptr(), buffer.bytes());
            drop(buffer);
            alloc.end_allocate_to_pool(&pool).unwrap();
            drop(pool);
            // Later captures look what has become of earlier ones.
            sim.finish(Stream(2));
            let reserved = alloc.stats().all().reserved_bytes.current;
            assert!(reserved <= if late { 4 << 20 } else { 0 }, "{reserved}");
        }
        alloc.poll();
        alloc.release_cached().unwrap();
        assert_eq!(
            (sim.violations(), sim.live(), sim.calls(Call::Synchronize)),
            (vec![], Live::default(), 1)
        );
    }
}

/// A server that captures all the time begins and ends pools meanwhile, of which many never had memory.
#[test]
fn pools_without_memory_are_forgotten_while_a_graph_is_captured() {
    let (alloc, sim) = allocator(Timeline::Immediate);
    let graph = alloc.private_pool().unwrap();
    alloc.begin_allocate_to_pool(&graph, Route::Stream(Stream(9))).unwrap();
    let held = alloc.alloc::<u8>(MIB, Stream(9)).unwrap();
    for n in 0..3000 {
        let other = match n % 2 {
            0 => alloc.private_pool().unwrap(),
            _ => alloc.pool("tenant", PoolConfig::default()).unwrap(),
        };
        alloc.begin_allocate_to_pool(&other, Route::Stream(Stream(3))).unwrap();
        alloc.end_allocate_to_pool(&other).unwrap();
    }
    // What has some waits for the capture.
    let other = alloc.private_pool().unwrap();
    alloc.begin_allocate_to_pool(&other, Route::Stream(Stream(3))).unwrap();
    drop(alloc.alloc::<u8>(MIB, Stream(3)).unwrap());
    alloc.end_allocate_to_pool(&other).unwrap();
    drop(other);
    let reserved = || alloc.stats().all().reserved_bytes.current;
    assert_eq!(reserved(), 4 << 20);
    alloc.end_allocate_to_pool(&graph).unwrap();
    assert_eq!(reserved(), 2 << 20);
    drop((held, graph));
    assert_eq!((reserved(), sim.violations(), sim.live()), (0, vec![], Live::default()));
}

#[test]
fn a_thread_ends_what_it_began_itself_if_it_began_anything() {
    let (alloc, _) = allocator(Timeline::Immediate);
    let pool = alloc.private_pool().unwrap();
    let in_pool = || {
        let before = pool.stats().allocation.allocated;
        drop(alloc.alloc::<u8>(MIB, Stream(1)).unwrap());
        pool.stats().allocation.allocated > before
    };
    alloc.begin_allocate_to_pool(&pool, Route::ThisThread).unwrap();
    let meeting = Barrier::new(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            alloc.begin_allocate_to_pool(&pool, Route::ThisThread).unwrap();
            meeting.wait();
            meeting.wait();
            assert!(in_pool(), "the other thread has ended its own");
        });
        meeting.wait();
        assert!(in_pool());
        assert!(alloc.end_allocate_to_pool(&pool).unwrap());
        assert!(!in_pool());
        meeting.wait();
        other.join().unwrap();
    });
    // Of a thread that is gone.
    assert!(alloc.end_allocate_to_pool(&pool).unwrap());
    assert!(!alloc.end_allocate_to_pool(&pool).unwrap());
}

/// An allocator of 100 MiB at most that waits for nothing, and a pool that is gone before the GPU has done its work: it held 80 MiB.
fn busy_when_its_pool_went(segments: SegmentMode) -> (Allocator, Sim) {
    let sim = Sim::new(SimConfig {
        timeline: Timeline::Manual,
        ..SimConfig::default()
    });
    let config = Config {
        publish: Publish::Off,
        segments,
        budget: Some(100 << 20),
        release_on_oom: false,
        cross_stream_reuse: true,
        ..Config::default()
    };
    let alloc = Allocator::new(sim.device(), config).unwrap();
    let pool = alloc.pool("tenant", PoolConfig::default()).unwrap();
    let buffer = pool.alloc::<u8>(80 * MIB, Stream(1)).unwrap();
    sim.enqueue(Stream(1), buffer.device_ptr(), 80 << 20);
    drop((buffer, pool));
    assert_eq!(reserved(&alloc), 80 << 20, "it may be used yet");
    (alloc, sim)
}

fn reserved(alloc: &Allocator) -> u64 {
    alloc.stats().all().reserved_bytes.current
}

#[test]
fn what_a_pool_that_is_gone_left_to_the_gpu_goes_back_when_memory_is_taken() {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        let (alloc, sim) = busy_when_its_pool_went(segments);
        let refused = alloc.alloc::<u8>(50 * MIB, Stream(2)).map(drop);
        assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
        assert_eq!(reserved(&alloc), 80 << 20);
        sim.finish(Stream(1));
        let buffer = alloc.alloc::<u8>(50 * MIB, Stream(2)).unwrap();
        assert_eq!(reserved(&alloc), 50 << 20, "{segments:?}");
        drop(buffer);
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}

#[test]
fn what_a_pool_that_is_gone_left_to_the_gpu_goes_back_when_it_is_looked_what_is_done() {
    let (alloc, sim) = busy_when_its_pool_went(SegmentMode::Stitched);
    alloc.poll();
    assert_eq!(reserved(&alloc), 80 << 20);
    sim.finish(Stream(1));
    alloc.poll();
    assert_eq!((reserved(&alloc), sim.live().allocations), (0, 0));
    assert_eq!(sim.violations(), Vec::<String>::new());
}

/// What is held of it, and what else lies in the same segment, follows when that is freed.
#[test]
fn what_is_free_of_a_pool_goes_back_when_it_ends_though_something_of_it_is_held() {
    for private in [false, true] {
        let (alloc, sim) = allocator(Timeline::Manual);
        let pool = match private {
            true => alloc.private_pool().unwrap(),
            false => alloc.pool("tenant", PoolConfig::default()).unwrap(),
        };
        let held = pool.alloc::<u8>(512, Stream(1)).unwrap();
        drop(pool.alloc::<u8>(30 * MIB, Stream(1)).unwrap());
        let used = pool.alloc::<u8>(40 * MIB, Stream(1)).unwrap();
        sim.enqueue(Stream(1), used.device_ptr(), 40 << 20);
        drop(used);
        drop(pool);
        assert_eq!(reserved(&alloc), 72 << 20, "it may be used yet");
        sim.finish(Stream(1));
        alloc.poll();
        assert_eq!(reserved(&alloc), 2 << 20);
        drop(held);
        assert_eq!((reserved(&alloc), sim.live().allocations), (0, 0));
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}

/// A graph's memory stays where it is, and so does that of others while it is captured.
#[test]
fn nothing_of_a_pool_that_is_gone_goes_back_in_a_capture() {
    let (alloc, sim) = busy_when_its_pool_went(SegmentMode::Plain);
    sim.finish(Stream(1));
    let graph = alloc.private_pool().unwrap();
    alloc.begin_allocate_to_pool(&graph, Route::ThisThread).unwrap();
    assert!(alloc.alloc::<u8>(50 * MIB, Stream(2)).is_err());
    alloc.poll();
    assert_eq!(reserved(&alloc), 80 << 20);
    alloc.end_allocate_to_pool(&graph).unwrap();
    assert_eq!(reserved(&alloc), 0);
}

#[test]
fn pools_that_went_before_the_gpu_was_done_make_room_for_others() {
    for private in [false, true] {
        let (alloc, sim) = allocator(Timeline::Manual);
        let make = || match private {
            true => alloc.private_pool(),
            false => alloc.pool("tenant", PoolConfig::default()),
        };
        let mut made = 0;
        let error = loop {
            let pool = match make() {
                Ok(pool) => pool,
                Err(error) => break error,
            };
            let buffer = pool.alloc::<u8>(512, Stream(made % 40 + 1)).unwrap();
            sim.enqueue(buffer.stream(), buffer.device_ptr(), 512);
            made += 1;
        };
        assert!(error.to_string().contains("1024 pools"), "{error}");
        assert_eq!(made, 1024);
        sim.finish(Stream(1));
        let pool = make().unwrap();
        assert_eq!(reserved(&alloc), (1024 - 26) * (2 << 20), "those that are not done");
        drop(pool);
        (1..=40).for_each(|stream| sim.finish(Stream(stream)));
        alloc.poll();
        assert_eq!((reserved(&alloc), sim.live().allocations), (0, 0));
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}

/// Of sixteen and more such pools each request looks at others.
#[test]
fn what_a_pool_that_is_gone_left_goes_back_behind_others_that_are_busy() {
    let (alloc, sim) = allocator(Timeline::Manual);
    let names: Vec<u64> = (1..=40).collect();
    let pools: Vec<_> = names
        .iter()
        .map(|n| alloc.pool(&n.to_string(), PoolConfig::default()).unwrap())
        .collect();
    for (n, pool) in names.iter().zip(&pools) {
        let block = pool.alloc::<u8>(20 << 20, Stream(*n)).unwrap();
        sim.enqueue(Stream(*n), block.device_ptr(), block.bytes());
    }
    drop(pools);
    sim.finish(Stream(40));
    let mut held = Vec::new();
    let left: Vec<u64> = (1..4)
        .map(|n| {
            held.push(alloc.alloc::<u8>(30 << 20, Stream(0)).unwrap());
            (reserved(&alloc) - n * (30 << 20)) / (20 << 20)
        })
        .collect();
    assert_eq!(left[..2], [40, 40]);
    // Plain memory that goes back has the driver wait for all that is queued.
    assert!(left[2] < 40, "{left:?}");
}
