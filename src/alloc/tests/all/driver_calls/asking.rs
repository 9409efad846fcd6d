//! What is asked of the driver: events, idle streams, free memory.

use std::thread::{scope, sleep};
use std::time::Duration;

use gpumem_alloc::device::{Call, Timeline};
use gpumem_alloc::{Buffer, Config, Error, Route, SegmentMode, Stream};

use crate::common::sharing;
use crate::driver_calls::bench::{Bench, MIB, MINE, OTHER, pool};

const THIRD: Stream = Stream(3);

/// With room for others, and streams that are done late.
fn busy(segments: SegmentMode) -> Bench {
    Bench::new(sharing(segments), Timeline::Manual).with_room()
}

/// A buffer that another stream works on.
fn used(bench: &Bench, mib: usize) -> Buffer<u8> {
    let buffer = bench.get(mib, OTHER);
    buffer.record_stream(THIRD).unwrap();
    bench.sim.enqueue(THIRD, buffer.device_ptr(), buffer.bytes());
    buffer
}

#[test]
fn frees_of_blocks_that_others_used() {
    for segments in SegmentMode::ALL {
        for call in [Call::Record, Call::Query] {
            let bench = busy(segments);
            let (first, second) = (used(&bench, 3), used(&bench, 5));
            bench.others_go_on(call, || drop(first));
            bench.others_go_on(call, || drop(second));
            bench.sim.finish(THIRD);
            bench.others_go_on(Call::Query, || bench.alloc.poll());
            let stats = bench.alloc.stats().all();
            assert_eq!(stats.active_bytes.current, stats.allocated_bytes.current);
            assert_eq!([Call::Record, Call::Query].map(|call| bench.sim.calls(call)), [2, 4]);
            bench.end();
        }
    }
}

#[test]
fn requests_that_need_what_others_gave_back() {
    for segments in SegmentMode::ALL {
        for call in [Call::QueryStream, Call::Record, Call::Query] {
            let bench = busy(segments);
            let theirs = bench.get(40, OTHER);
            bench.sim.enqueue(OTHER, theirs.device_ptr(), theirs.bytes());
            drop(theirs);
            // The first one leaves an event, which the next one asks for.
            let held = (call == Call::Query).then(|| bench.get(40, THIRD));
            drop(bench.others_go_on(call, || bench.get(40, Stream(4))));
            drop(held);
            bench.end();
        }
    }
}

/// Requests of a loop, which go where they went in the round before.
fn round(bench: &Bench, stream: Stream) {
    let sizes = (0..100).map(|n| 11 * MIB / 10 + n * 37 % 100 * MIB / 128);
    let held: Vec<Buffer<u8>> = sizes.map(|bytes| bench.alloc.alloc(bytes, stream).unwrap()).collect();
    drop(held);
}

/// A loop of [`THIRD`] after whose rounds [`OTHER`] has the same memory, of which a buffer is held.
fn loops() -> (Bench, Buffer<u8>) {
    let bench = busy(SegmentMode::Stitched);
    for _ in 0..4 {
        round(&bench, THIRD);
        round(&bench, OTHER);
    }
    let theirs = bench.get(1, OTHER);
    (bench, theirs)
}

#[test]
fn requests_that_go_where_they_went_before() {
    for call in [Call::QueryStream, Call::Record, Call::Query] {
        let (bench, theirs) = loops();
        if call != Call::QueryStream {
            bench.sim.enqueue(OTHER, theirs.device_ptr(), theirs.bytes());
        }
        if call == Call::Query {
            // It leaves an event.
            drop(bench.get(100, Stream(4)));
        }
        bench.others_go_on(call, || round(&bench, THIRD));
        drop(theirs);
        bench.end();
    }
}

#[test]
fn a_stream_that_ends_while_a_loop_asks_about_it() {
    let (bench, theirs) = loops();
    let pause = bench.sim.pause_first(Call::QueryStream);
    scope(|scope| {
        scope.spawn(|| round(&bench, THIRD));
        pause.wait();
        let ends = scope.spawn(|| {
            bench.alloc.retire_stream(OTHER).unwrap();
            bench.sim.destroy_stream(OTHER);
        });
        sleep(Duration::from_millis(20));
        assert!(!ends.is_finished(), "it would be asked about a stream that is gone");
        drop(pause);
    });
    drop(theirs);
    bench.end();
}

/// Blocks that wait are looked at before anything else is.
#[test]
fn requests_while_blocks_wait() {
    for segments in SegmentMode::ALL {
        let bench = busy(segments);
        drop(used(&bench, 20));
        bench.sim.finish(THIRD);
        let addr = bench.others_go_on(Call::Query, || bench.get(20, OTHER).device_ptr());
        assert!(addr > 0);
        bench.end();
    }
}

#[test]
fn streams_that_end() {
    for segments in SegmentMode::ALL {
        for call in [Call::Record, Call::Query] {
            let bench = busy(segments);
            let buffer = used(&bench, 3);
            bench.others_go_on(call, || bench.alloc.retire_stream(THIRD).unwrap());
            bench.sim.destroy_stream(THIRD);
            drop(buffer);
            // A buffer whose stream has ended.
            let mut mine = bench.get(1, Stream(4));
            bench.sim.enqueue(Stream(4), mine.device_ptr(), mine.bytes());
            bench.alloc.retire_stream(Stream(4)).unwrap();
            bench.others_go_on(Call::Query, || mine.write_at(0, &[1]).unwrap());
            drop(mine);
            bench.end();
        }
    }
}

#[test]
fn the_report_of_a_request_that_fails() {
    let config = Config {
        release_on_oom: false,
        ..sharing(SegmentMode::Plain)
    };
    let bench = Bench::new(config, Timeline::Manual).with_room();
    let refused = bench.others_go_on(Call::MemoryInfo, || bench.alloc.alloc::<u8>(400 * MIB, OTHER));
    match refused {
        Err(Error::OutOfMemory(report)) => assert!(report.device_free.unwrap() > 200 << 20),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.sim.calls(Call::MemoryInfo), 1);
    bench.end();
}

#[test]
fn compacting_looks_how_far_streams_are() {
    for call in [Call::QueryStream, Call::Record, Call::Query] {
        let bench = busy(SegmentMode::Plain);
        let theirs = bench.get(40, OTHER);
        bench.sim.enqueue(OTHER, theirs.device_ptr(), theirs.bytes());
        let waits = used(&bench, 3);
        drop((theirs, waits));
        bench.others_go_on(call, || bench.alloc.compact().unwrap());
        bench.end();
    }
}

#[test]
fn pools_that_go_while_their_stream_is_busy() {
    for call in [Call::QueryStream, Call::Record] {
        let bench = busy(SegmentMode::Stitched);
        let tenant = pool(&bench, 0);
        let held = tenant.alloc::<u8>(20 * MIB, OTHER).unwrap();
        bench.sim.enqueue(OTHER, held.device_ptr(), held.bytes());
        drop(tenant);
        bench.others_go_on(call, || drop(held));
        bench.end();
    }
}

/// A stream is not destroyed while an event is recorded on it: who retires it waits, and nobody else does.
#[test]
fn a_stream_that_ends_while_it_is_asked_about() {
    for segments in SegmentMode::ALL {
        let bench = busy(segments);
        let held = used(&bench, 3);
        let pause = bench.sim.pause(Call::Record);
        scope(|scope| {
            let frees = scope.spawn(|| drop(held));
            pause.wait();
            let ends = scope.spawn(|| {
                bench.alloc.retire_stream(THIRD).unwrap();
                bench.sim.destroy_stream(THIRD);
            });
            sleep(Duration::from_millis(20));
            assert!(!ends.is_finished() && !frees.is_finished());
            drop(bench.get(1, MINE));
            drop(pause);
        });
        bench.sim.finish(THIRD);
        bench.alloc.poll();
        let stats = bench.alloc.stats().all();
        assert_eq!(stats.active_bytes.current, stats.allocated_bytes.current);
        bench.end();
    }
}

/// The device is waited for while an event is recorded or asked for: the block comes free, and the event goes back.
#[test]
fn what_is_settled_meanwhile() {
    for segments in SegmentMode::ALL {
        for call in [Call::Record, Call::Query] {
            for fails in [false, true] {
                let bench = busy(segments);
                let held = used(&bench, 3);
                let pause = bench.sim.pause(call);
                scope(|scope| {
                    let frees = scope.spawn(|| drop(held));
                    pause.wait();
                    bench.alloc.release_cached().unwrap();
                    let stats = bench.alloc.stats().all();
                    assert_eq!(stats.active_bytes.current, stats.allocated_bytes.current);
                    if fails {
                        bench.sim.fail_after(0, false);
                    }
                    drop(pause);
                    frees.join().unwrap();
                });
                assert!(!fails || !bench.sim.clear_failure(), "it failed");
                assert_eq!(bench.sim.live().events, 0, "{segments:?}, {call:?}");
                bench.end();
            }
        }
    }
}

/// The last handle goes while the last buffer is given back: the heap stays until that is done.
#[test]
fn a_heap_that_ends_while_a_buffer_is_given_back() {
    for call in [Call::Record, Call::Query] {
        let bench = busy(SegmentMode::Stitched);
        let held = used(&bench, 3);
        let sim = bench.sim.clone();
        let pause = sim.pause(call);
        scope(|scope| {
            scope.spawn(|| drop(held));
            pause.wait();
            drop(bench);
            assert!(sim.live().bytes > 0);
            drop(pause);
        });
        assert_eq!((sim.live(), sim.violations()), Default::default());
    }
}

/// No graph is captured while something is asked, and nothing is asked while one is.
#[test]
fn a_capture_that_begins_meanwhile() {
    for call in [Call::Record, Call::Query] {
        let bench = busy(SegmentMode::Stitched);
        let private = bench.alloc.private_pool().unwrap();
        let held = used(&bench, 3);
        let pause = bench.sim.pause(call);
        scope(|scope| {
            scope.spawn(|| drop(held));
            pause.wait();
            let begins = scope.spawn(|| {
                bench
                    .alloc
                    .begin_allocate_to_pool(&private, Route::Stream(Stream(9)))
                    .unwrap()
            });
            sleep(Duration::from_millis(20));
            assert!(!begins.is_finished());
            drop(bench.get(1, MINE));
            drop(pause);
        });
        let asked = bench.sim.total_calls();
        bench.alloc.poll();
        assert_eq!(bench.sim.total_calls(), asked);
        bench.alloc.end_allocate_to_pool(&private).unwrap();
        drop(private);
        bench.end();
    }
}
