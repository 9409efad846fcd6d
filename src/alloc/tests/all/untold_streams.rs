//! Programs that PyTorch's allocator runs well: streams that end without a word, memory that is freed while another stream still reads it.
//!
//! The simulated driver counts each call that names a stream which was destroyed as a violation: the real one crashes.

use std::collections::HashMap;

use gpumem_alloc::device::{Call, Sim, Timeline};
use gpumem_alloc::{Allocator, Config, Error, Route, SegmentMode, Stream};

use crate::common::{MIB, start};

const A: Stream = Stream(10);
const B: Stream = Stream(20);
const C: Stream = Stream(30);

const MODES: [SegmentMode; 3] = [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched];

/// As the C library has it.
fn config(segments: SegmentMode, cross_stream_reuse: bool) -> Config {
    Config {
        segments,
        cross_stream_reuse,
        streams_may_end_untold: true,
        ..Config::default()
    }
}

fn each(test: impl Fn(Sim, Allocator)) {
    for segments in MODES {
        let (sim, alloc) = start(1 << 30, Timeline::Manual, config(segments, false));
        test(sim.clone(), alloc);
        assert_eq!(sim.violations(), Vec::<String>::new(), "{segments:?}");
        assert_eq!((sim.live().bytes, sim.live().events), (0, 0), "{segments:?}");
    }
}

/// 40 MiB on a stream, freed in the order of the same stream.
fn take(alloc: &Allocator, stream: Stream) -> u64 {
    alloc.alloc_raw(40 * MIB as u64, stream).unwrap()
}

fn free(alloc: &Allocator, addr: u64, stream: Stream) {
    alloc.free_raw_after(addr, 0, stream).unwrap();
}

#[test]
fn a_destroyed_stream_is_never_named() {
    each(|sim, alloc| {
        let kept = take(&alloc, A);
        let freed = take(&alloc, A);
        sim.enqueue(A, freed, 1);
        free(&alloc, freed, A);
        sim.finish(A);
        sim.destroy_stream(A);
        // Each looks for memory in another way: what is free elsewhere, new memory, the device waited for, the cache given back.
        let held: Vec<u64> = std::iter::from_fn(|| alloc.alloc_raw(40 * MIB as u64, B).ok()).collect();
        assert!(held.len() > 20, "{}", held.len());
        held.into_iter().for_each(|addr| free(&alloc, addr, B));
        alloc.poll();
        alloc.release_cached().unwrap();
        alloc.compact().unwrap();
        // Freed by another thread than those that knew the stream.
        std::thread::scope(|scope| scope.spawn(|| free(&alloc, kept, A)).join().unwrap());
        let _ = alloc.alloc_raw(900 * MIB as u64, B).map(|addr| free(&alloc, addr, B));
    });
}

#[test]
fn a_block_freed_while_another_stream_reads_it_is_its_own_streams_only() {
    each(|sim, alloc| {
        let x = take(&alloc, A);
        sim.enqueue(B, x, 40 << 20);
        free(&alloc, x, A);
        let z = take(&alloc, C);
        assert!(!sim.busy_for(C, z, 40 << 20), "B reads what C was given");
        // A waits for B first, as the program knows it has to.
        sim.finish(B);
        assert_eq!(take(&alloc, A), x);
        [x, z].into_iter().for_each(|addr| alloc.free_raw(addr).unwrap());
        let asked = [Call::Synchronize, Call::QueryStream, Call::Record, Call::RecordAll].map(|call| sim.calls(call));
        assert_eq!(asked, [0; 4]);
    });
}

#[test]
fn what_was_freed_before_a_wait_for_the_device_is_anybodys() {
    each(|sim, alloc| {
        let x = take(&alloc, A);
        sim.enqueue(A, x, 40 << 20);
        free(&alloc, x, A);
        alloc.settle().unwrap();
        let reserved = alloc.stats().all().reserved_bytes.current;
        let z = take(&alloc, C);
        assert_eq!((z, alloc.stats().all().reserved_bytes.current), (x, reserved));
        free(&alloc, z, C);
    });
}

#[test]
fn memory_of_other_streams_serves_before_a_request_is_refused() {
    each(|sim, alloc| {
        let held: Vec<u64> = (0..24).map(|_| take(&alloc, A)).collect();
        for addr in held {
            sim.enqueue(B, addr, 40 << 20);
            free(&alloc, addr, A);
        }
        let large = alloc.alloc_raw(900 * MIB as u64, C).unwrap();
        assert!(!sim.busy_for(C, large, 900 << 20));
        assert_eq!(sim.calls(Call::Synchronize), 1);
        free(&alloc, large, C);
    });
}

/// The stream that comes with a free may be gone, or be another one by now: nothing is asked of it.
#[test]
fn the_stream_of_a_free_is_not_trusted() {
    each(|sim, alloc| {
        let known = take(&alloc, B);
        free(&alloc, known, B);
        let [x, y] = [(); 2].map(|()| take(&alloc, A));
        sim.enqueue(B, x, 40 << 20);
        sim.destroy_stream(B);
        free(&alloc, x, B);
        // One that the allocator never saw.
        sim.enqueue(C, y, 40 << 20);
        sim.destroy_stream(C);
        free(&alloc, y, C);
        let z = take(&alloc, A);
        assert!(!sim.busy_for(A, z, 40 << 20), "what is queued on B and C uses it");
        free(&alloc, z, A);
        let large = alloc.alloc_raw(900 * MIB as u64, A).unwrap();
        assert!(!sim.busy_for(A, large, 900 << 20));
        free(&alloc, large, A);
    });
}

#[test]
fn a_recorded_stream_may_be_gone_when_the_block_is_freed() {
    each(|sim, alloc| {
        let x = take(&alloc, A);
        alloc.record_stream_raw(x, B).unwrap();
        sim.enqueue(B, x, 40 << 20);
        sim.destroy_stream(B);
        free(&alloc, x, A);
        let y = take(&alloc, A);
        assert!(!sim.busy_for(A, y, 40 << 20), "what was queued on B uses it");
        // Another stream of the same handle says nothing of the one before, whose work goes on.
        sim.create_stream(B);
        let w = take(&alloc, A);
        alloc.record_stream_raw(w, B).unwrap();
        free(&alloc, w, A);
        alloc.record_stream_raw(y, B).unwrap();
        sim.finish_living(B);
        alloc.poll();
        assert_eq!(alloc.stats().all().active.current, 2, "y is held, and x waits");
        let z = take(&alloc, A);
        assert!(!sim.busy_for(A, z, 40 << 20), "what was queued on the B before uses it");
        [y, z].into_iter().for_each(|addr| free(&alloc, addr, A));
        let large = alloc.alloc_raw(900 * MIB as u64, A).unwrap();
        assert!(!sim.busy_for(A, large, 900 << 20));
        free(&alloc, large, A);
    });
}

/// It takes its event when the program names the stream again, which is the same one, and not before.
#[test]
fn a_block_that_a_stream_used_is_free_once_that_was_named_again_and_is_done() {
    each(|sim, alloc| {
        for names in [0, 1] {
            let x = take(&alloc, A);
            alloc.record_stream_raw(x, B).unwrap();
            sim.enqueue(B, x, 40 << 20);
            free(&alloc, x, A);
            let pending = || alloc.stats().all().active.current;
            alloc.poll();
            assert_eq!(pending(), 1);
            let other = take(&alloc, A);
            if names == 0 {
                alloc.record_stream_raw(other, B).unwrap();
            } else {
                // By the request that finds nothing free.
                let here = take(&alloc, B);
                free(&alloc, here, B);
            }
            alloc.poll();
            assert_eq!(pending(), 2, "B is not done");
            sim.finish(B);
            alloc.poll();
            assert_eq!(pending(), 1, "{names}");
            free(&alloc, other, A);
            sim.finish(B);
            alloc.settle().unwrap();
            alloc.release_cached().unwrap();
        }
    });
}

/// Of a stream that lives as long as the process the event is recorded when the block is freed.
#[test]
fn a_stream_that_lasts_has_its_event_at_the_free() {
    each(|sim, alloc| {
        let x = take(&alloc, A);
        alloc.record_stream_raw_as(x, B, true).unwrap();
        sim.enqueue(B, x, 40 << 20);
        free(&alloc, x, A);
        assert_eq!((sim.calls(Call::Record), alloc.stats().all().active.current), (1, 1));
        sim.finish(B);
        alloc.poll();
        assert_eq!(alloc.stats().all().active.current, 0);
    });
}

/// Another library makes a stream for each task, has it use PyTorch's memory, and destroys it: what waits for such is worth a wait for the device
/// now and then.
#[test]
fn memory_that_streams_used_which_are_gone_serves_again() {
    each(|sim, alloc| {
        for n in 0..100 {
            let used = Stream(1000 + n);
            let x = take(&alloc, A);
            alloc.record_stream_raw(x, used).unwrap();
            sim.enqueue(used, x, 40 << 20);
            free(&alloc, x, A);
            sim.destroy_stream(used);
        }
        let (reserved, waits) = (alloc.stats().all().reserved_bytes.peak, sim.calls(Call::Synchronize));
        assert!(reserved <= 200 << 20 && waits <= 60, "{reserved} bytes, {waits} waits");
    });
}

/// It takes the event that blocks wait for, and then its last one.
#[test]
fn a_stream_that_blocks_wait_for_may_be_retired() {
    each(|sim, alloc| {
        let [x, mine] = [A, B].map(|stream| take(&alloc, stream));
        alloc.record_stream_raw(x, B).unwrap();
        sim.enqueue(B, x, 40 << 20);
        free(&alloc, x, A);
        free(&alloc, mine, B);
        alloc.retire_stream(B).unwrap();
        sim.destroy_stream(B);
        let y = take(&alloc, A);
        assert!(!sim.busy_for(A, y, 40 << 20));
        sim.finish(B);
        alloc.poll();
        assert_eq!(alloc.stats().all().active.current, 1);
        free(&alloc, y, A);
    });
}

/// A stream of the same handle is retired: what the one before it has queued is not done by that.
#[test]
fn what_a_stream_used_is_not_done_when_another_one_of_its_handle_is() {
    each(|sim, alloc| {
        let x = take(&alloc, A);
        alloc.record_stream_raw(x, B).unwrap();
        sim.enqueue(B, x, 40 << 20);
        sim.destroy_stream(B);
        sim.create_stream(B);
        let other = take(&alloc, A);
        alloc.record_stream_raw(other, B).unwrap();
        alloc.retire_stream(B).unwrap();
        sim.finish_living(B);
        // Streams that have ended are forgotten once there are many.
        for n in 0..40 {
            let addr = alloc.alloc_raw(512, Stream(1000 + n)).unwrap();
            free(&alloc, addr, Stream(1000 + n));
            alloc.retire_stream(Stream(1000 + n)).unwrap();
        }
        free(&alloc, x, A);
        let y = take(&alloc, A);
        assert!(!sim.busy_for(A, y, 40 << 20), "the stream that was destroyed uses it");
        [y, other].into_iter().for_each(|addr| free(&alloc, addr, A));
    });
}

/// A graph is captured that nobody told of: the driver refuses to wait. What a request can do without is no reason to fail.
#[test]
fn a_wait_that_is_refused_fails_no_request_that_can_do_without() {
    each(|sim, alloc| {
        sim.fail_next(Call::Synchronize, 100);
        for n in 0..6 {
            let x = take(&alloc, A);
            alloc.record_stream_raw(x, Stream(1000 + n)).unwrap();
            free(&alloc, x, A);
        }
        assert!(sim.calls(Call::Synchronize) > 0);
        sim.fail_next(Call::Synchronize, 0);
    });
}

/// It may not be asked for its number, by which it would be known again.
#[test]
fn a_stream_may_be_recorded_while_a_graph_is_captured_from_it() {
    each(|sim, alloc| {
        for lasts in [false, true] {
            sim.capture(B, true);
            let x = take(&alloc, A);
            alloc.record_stream_raw_as(x, B, lasts).unwrap();
            sim.capture(B, false);
            sim.enqueue(B, x, 40 << 20);
            free(&alloc, x, A);
            let y = take(&alloc, A);
            assert!(!sim.busy_for(A, y, 40 << 20), "{lasts}");
            alloc.settle().unwrap();
            free(&alloc, y, A);
            assert_eq!(alloc.stats().all().active.current, 0, "{lasts}");
        }
    });
}

#[test]
fn a_lasting_stream_is_not_taken_for_the_one_that_had_its_handle() {
    each(|sim, alloc| {
        let x = take(&alloc, A);
        alloc.record_stream_raw(x, B).unwrap();
        sim.enqueue(B, x, 40 << 20);
        sim.destroy_stream(B);
        sim.create_stream(B);
        let y = take(&alloc, A);
        alloc.record_stream_raw_as(y, B, true).unwrap();
        free(&alloc, x, A);
        alloc.poll();
        let z = take(&alloc, A);
        assert!(!sim.busy_for(A, z, 40 << 20));
        [y, z].into_iter().for_each(|addr| free(&alloc, addr, A));
    });
}

/// A capture that failed leaves its route to whoever ends it; its stream may be gone before.
#[test]
fn the_stream_of_a_failed_capture_may_be_gone() {
    each(|sim, alloc| {
        let pool = alloc.private_pool().unwrap();
        let route = Route::Capture {
            stream: B,
            lasts: false,
            filter: std::sync::Arc::new(|stream| stream == B),
        };
        alloc.begin_allocate_to_pool(&pool, route).unwrap();
        sim.capture(B, true);
        let inside = take(&alloc, B);
        sim.capture(B, false);
        sim.destroy_stream(B);
        let x = take(&alloc, A);
        free(&alloc, x, A);
        assert!(matches!(alloc.release_cached(), Err(Error::Capturing)));
        free(&alloc, inside, B);
        assert!(alloc.end_allocate_to_pool(&pool).unwrap());
        alloc.release_cached().unwrap();
    });
}

/// More streams than are kept apart, which all end untold, and more than the device has room for if each keeps its memory.
#[test]
fn however_many_streams_ended_untold_there_is_room_for_one_more() {
    each(|sim, alloc| {
        for n in 0..5000 {
            let stream = Stream(1000 + n);
            let addr = alloc.alloc_raw(512, stream).unwrap();
            free(&alloc, addr, stream);
            sim.destroy_stream(stream);
        }
    });
}

/// Queued work may use it, whatever its own streams say: it goes back once the device was waited for, which memory that is taken is worth.
#[test]
fn what_a_pool_that_is_gone_left_goes_back_when_memory_is_taken() {
    each(|sim, alloc| {
        let pool = alloc.private_pool().unwrap();
        alloc.begin_allocate_to_pool(&pool, Route::ThisThread).unwrap();
        let inside = take(&alloc, A);
        alloc.end_allocate_to_pool(&pool).unwrap();
        sim.enqueue(B, inside, 40 << 20);
        free(&alloc, inside, A);
        drop(pool);
        alloc.poll();
        let reserved = || alloc.stats().all().reserved_bytes.current;
        assert_eq!(reserved(), 40 << 20);
        let new = take(&alloc, A);
        assert_eq!((reserved(), sim.calls(Call::Synchronize)), (40 << 20, 1));
        free(&alloc, new, A);
    });
}

/// The thread and its stream are done, and another stream is not that reads what the thread freed.
#[test]
fn what_a_thread_that_has_ended_freed_may_still_be_read() {
    each(|sim, alloc| {
        let mut ended = Vec::new();
        for _ in 0..20 {
            let task = || {
                let addr = alloc.alloc_raw(1 << 20, Stream::per_thread()).unwrap();
                sim.enqueue(B, addr, 1 << 20);
                free(&alloc, addr, Stream::per_thread());
                Stream::per_thread()
            };
            ended.push(std::thread::scope(|scope| scope.spawn(task).join().unwrap()));
        }
        ended.into_iter().for_each(|stream| sim.finish(stream));
        alloc.poll();
        let held: Vec<u64> = (0..40).map(|_| alloc.alloc_raw(1 << 20, C).unwrap()).collect();
        assert_eq!(sim.calls(Call::Synchronize), 0, "that is not worth a wait yet");
        assert!(held.iter().all(|addr| !sim.busy_for(C, *addr, 1 << 20)), "B reads it");
        held.into_iter().for_each(|addr| free(&alloc, addr, C));
    });
}

/// A thread for each task, on its own default stream: what those keep that have ended is worth a wait for the device now and then.
#[test]
fn threads_that_end_leave_their_memory_to_others() {
    each(|sim, alloc| {
        for _ in 0..200 {
            let task = || {
                let addr = take(&alloc, Stream::per_thread());
                sim.enqueue(Stream::per_thread(), addr, 40 << 20);
                free(&alloc, addr, Stream::per_thread());
            };
            std::thread::scope(|scope| scope.spawn(task).join().unwrap());
        }
        let (reserved, waits) = (alloc.stats().all().reserved_bytes.peak, sim.calls(Call::Synchronize));
        // Sixteen end before anything is done about it.
        assert!(
            reserved <= (18 * 40) << 20 && waits <= 20,
            "{reserved} bytes, {waits} waits"
        );
    });
}

/// Random programs, each right on PyTorch's allocator: a stream waits for those that read what it freed before it asks for more, and says so
/// of what it does not wait for. No block is one that queued work of another stream still uses.
#[test]
fn random_programs_that_are_right_on_pytorchs_allocator() {
    for seed in 0..60u64 {
        let segments = MODES[seed as usize % 3];
        let total = if seed % 2 == 0 { 1 << 30 } else { 200 << 20 };
        let (sim, alloc) = start(total, Timeline::Manual, config(segments, false));
        let mut state = seed * 2 + 1;
        let mut below = |n: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let mut streams: Vec<Stream> = (1..5).map(|n| Stream(n * 10)).collect();
        let mut next = 100;
        // Blocks with their stream, which may be gone; and of each stream those that read what it freed.
        let mut held: Vec<(u64, u64, Stream)> = Vec::new();
        let mut readers: HashMap<Stream, Vec<Stream>> = HashMap::new();
        for _ in 0..400 {
            let stream = streams[below(streams.len() as u64) as usize];
            match below(10) {
                0..=3 => {
                    // The program has it wait.
                    for reader in readers.remove(&stream).unwrap_or_default() {
                        if streams.contains(&reader) {
                            sim.finish(reader);
                        }
                    }
                    let bytes = match below(3) {
                        0 => 512 * (1 + below(100)),
                        _ => (1 + below(24)) << 20,
                    };
                    if let Ok(addr) = alloc.alloc_raw(bytes, stream) {
                        assert!(!sim.busy_for(stream, addr, bytes), "{seed} {segments:?}");
                        sim.enqueue(stream, addr, bytes);
                        held.push((addr, bytes, stream));
                    }
                }
                4..=5 if !held.is_empty() => {
                    let at = below(held.len() as u64) as usize;
                    let (addr, bytes, owner) = held[at];
                    sim.enqueue(stream, addr, bytes);
                    match below(2) {
                        0 => alloc.record_stream_raw(addr, stream).unwrap(),
                        _ => readers.entry(owner).or_default().push(stream),
                    }
                }
                6..=7 if !held.is_empty() => {
                    let at = below(held.len() as u64) as usize;
                    let (addr, _, owner) = held.swap_remove(at);
                    free(&alloc, addr, owner);
                }
                8 => sim.advance(stream, below(4)),
                _ if below(6) == 0 && streams.len() > 2 => {
                    // A stream of PyTorch's program is idle when it is destroyed.
                    sim.finish(stream);
                    sim.destroy_stream(stream);
                    streams.retain(|other| *other != stream);
                    streams.push(Stream(next));
                    next += 1;
                }
                _ if below(20) == 0 => drop(alloc.release_cached()),
                _ => alloc.poll(),
            }
        }
        held.into_iter().for_each(|(addr, _, owner)| free(&alloc, addr, owner));
        assert_eq!(sim.violations(), Vec::<String>::new(), "{seed} {segments:?}");
    }
}

/// With reuse across streams no stream is named, either: one event tells of all of them.
#[test]
fn reuse_across_streams_names_no_stream() {
    for segments in MODES {
        let (sim, alloc) = start(1 << 30, Timeline::Manual, config(segments, true));
        let x = take(&alloc, A);
        sim.enqueue(A, x, 40 << 20);
        free(&alloc, x, A);
        let y = take(&alloc, C);
        assert!(!sim.busy_for(C, y, 40 << 20));
        sim.finish(A);
        sim.destroy_stream(A);
        let z = take(&alloc, C);
        assert_eq!(z, x, "{segments:?}");
        [y, z].into_iter().for_each(|addr| free(&alloc, addr, C));
        assert_eq!((sim.calls(Call::QueryStream), sim.calls(Call::Record)), (0, 0));
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}
