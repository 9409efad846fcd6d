//! Streams that are retired, destroyed, and made anew with the same handle.

use gpumem_alloc::device::{Call, Sim, SimConfig, Timeline};
use gpumem_alloc::{Allocator, Buffer, Config, Error, Publish, Route, SegmentMode, Stream};

use crate::common::{MIB, sharing, start};

const A: Stream = Stream(10);
const B: Stream = Stream(20);

fn all(test: impl Fn(Sim, Allocator)) {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        let (sim, alloc) = start(1 << 30, Timeline::Manual, sharing(segments));
        test(sim.clone(), alloc);
        assert_eq!((sim.live().bytes, sim.live().events), (0, 0));
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}

fn end(sim: &Sim, alloc: &Allocator, stream: Stream) {
    alloc.retire_stream(stream).unwrap();
    sim.destroy_stream(stream);
}

#[test]
fn a_buffer_outlives_its_stream() {
    all(|sim, alloc| {
        let mut buffer = alloc.alloc::<u32>(4 * MIB, A).unwrap();
        sim.enqueue(A, buffer.device_ptr(), buffer.bytes());
        end(&sim, &alloc, A);
        buffer.fill_words(7).unwrap();
        buffer.write_at(1, &[8]).unwrap();
        let mut values = [0; 3];
        buffer.read_at(0, &mut values).unwrap();
        assert_eq!((values, buffer.stream()), ([7, 8, 7], A));
        assert_eq!(sim.calls(Call::Synchronize), 1, "until its stream is known to be done");
        let addr = buffer.device_ptr();
        drop(buffer);
        assert_eq!(alloc.alloc::<u32>(4 * MIB, B).unwrap().device_ptr(), addr);
    });
}

/// Its memory is anybody's when it is dropped, and nobody waits for the default stream then.
#[test]
fn a_fill_of_a_buffer_whose_stream_has_ended_is_done_when_it_returns() {
    all(|sim, alloc| {
        let [mut kept, mut ended] = [Stream::DEFAULT, A].map(|stream| alloc.alloc::<u32>(MIB, stream).unwrap());
        end(&sim, &alloc, A);
        sim.finish(A);
        let copies = |buffer: &mut Buffer<u32>| {
            let before = sim.calls(Call::Copy);
            buffer.fill_words(7).unwrap();
            sim.calls(Call::Copy) - before
        };
        assert_eq!(
            (copies(&mut kept), copies(&mut ended)),
            (1, 2),
            "it is read, which waits"
        );
    });
}

#[test]
fn what_a_stream_leaves_is_anybodys_once_its_work_is_done() {
    all(|sim, alloc| {
        let (first, second) = (
            alloc.alloc::<u8>(16 * MIB, A).unwrap(),
            alloc.alloc::<u8>(16 * MIB, A).unwrap(),
        );
        let theirs = [first.device_ptr(), second.device_ptr()];
        theirs.iter().for_each(|addr| sim.enqueue(A, *addr, 16 << 20));
        drop(first);
        end(&sim, &alloc, A);
        drop(second);
        let other = alloc.alloc::<u8>(16 * MIB, B).unwrap();
        assert!(!theirs.contains(&other.device_ptr()), "its work goes on");
        let reserved = alloc.stats().all().reserved_bytes.current;
        sim.finish(A);
        let others = [(); 2].map(|()| alloc.alloc::<u8>(16 * MIB, B).unwrap());
        assert!(others.iter().all(|buffer| theirs.contains(&buffer.device_ptr())));
        assert_eq!(alloc.stats().all().reserved_bytes.current, reserved);
    });
}

/// Of two streams of one handle neither is waited for in the place of the other.
#[test]
fn a_handle_that_comes_back_is_another_stream() {
    all(|sim, alloc| {
        let kept = alloc.alloc::<u8>(16 * MIB, A).unwrap();
        let addr = kept.device_ptr();
        end(&sim, &alloc, A);
        sim.create_stream(A);
        sim.enqueue(A, addr, 16 << 20);
        kept.record_stream(A).unwrap();
        drop(kept);
        let all = alloc.stats().all();
        assert_eq!((all.allocation.current, all.active.current), (0, 1));
        let [mine, other] = [A, B].map(|stream| alloc.alloc::<u8>(16 * MIB, stream).unwrap());
        assert!(
            mine.device_ptr() != addr && other.device_ptr() != addr,
            "the new A works on it"
        );
        sim.finish(A);
        alloc.poll();
        assert_eq!(alloc.stats().all().active.current, 2);
        assert_eq!(alloc.alloc::<u8>(16 * MIB, B).unwrap().device_ptr(), addr);
    });
}

#[test]
fn memory_that_an_ended_stream_used_waits_for_its_work() {
    all(|sim, alloc| {
        let buffer = alloc.alloc::<u8>(16 * MIB, B).unwrap();
        let addr = buffer.device_ptr();
        buffer.record_stream(A).unwrap();
        sim.enqueue(A, addr, 16 << 20);
        end(&sim, &alloc, A);
        drop(buffer);
        assert_ne!(alloc.alloc::<u8>(16 * MIB, B).unwrap().device_ptr(), addr);
        sim.finish(A);
        alloc.poll();
        assert_eq!(alloc.stats().all().active.current, 0);
    });
}

#[test]
fn a_free_may_name_the_stream_that_the_memory_was_taken_for() {
    all(|sim, alloc| {
        let [addr, other] = [(); 2].map(|()| alloc.alloc_raw(16 << 20, A).unwrap());
        end(&sim, &alloc, A);
        alloc.free_raw_after(addr, 0, A).unwrap();
        assert_eq!(alloc.stats().all().active.current, 1, "nothing to wait for but its end");
        // Once there is a stream of that name again, it is that one.
        sim.create_stream(A);
        drop(alloc.alloc::<u8>(1, A).unwrap());
        sim.enqueue(A, other, 16 << 20);
        alloc.free_raw_after(other, 0, A).unwrap();
        assert_eq!(alloc.stats().all().active.current, 1);
        sim.finish(A);
        alloc.poll();
        assert_eq!(alloc.stats().all().active.current, 0);
    });
}

#[test]
fn what_cannot_be_retired_is_an_error_and_what_is_not_known_is_fine() {
    all(|sim, alloc| {
        assert!(matches!(
            alloc.retire_stream(Stream::DEFAULT),
            Err(Error::DefaultStream)
        ));
        alloc.retire_stream(A).unwrap();
        drop(alloc.alloc::<u8>(MIB, A).unwrap());
        let pool = alloc.private_pool().unwrap();
        alloc.begin_allocate_to_pool(&pool, Route::Stream(B)).unwrap();
        assert!(matches!(alloc.retire_stream(A), Err(Error::Capturing)));
        assert!(alloc.end_allocate_to_pool(&pool).unwrap());
        end(&sim, &alloc, A);
        alloc.retire_stream(A).unwrap();
        assert_eq!(sim.calls(Call::Record), 1);
    });
}

/// Lanes change hands while other threads find theirs.
#[test]
fn threads_make_and_end_streams_side_by_side() {
    for segments in [SegmentMode::Plain, SegmentMode::Stitched] {
        let sim = Sim::new(SimConfig {
            timeline: Timeline::After(20),
            total: 1 << 30,
            ..SimConfig::default()
        });
        let config = Config {
            publish: Publish::Off,
            segments,
            cross_stream_reuse: true,
            ..Config::default()
        };
        let alloc = Allocator::new(sim.device(), config).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..12u64 {
                let (sim, alloc) = (sim.clone(), alloc.clone());
                scope.spawn(move || {
                    let mut left = Vec::new();
                    for round in 0..60 {
                        let stream = Stream(100 + thread + 12 * round);
                        for n in 0..40 {
                            let bytes = [4096, 70_000, 2 * MIB][n % 3];
                            let mut buffer = alloc.alloc::<u32>(bytes / 4, stream).unwrap();
                            let word = (thread * 1000 + round) as u32;
                            buffer.fill_words(word).unwrap();
                            sim.enqueue(stream, buffer.device_ptr(), buffer.bytes());
                            let mut first = [0];
                            buffer.read_at(0, &mut first).unwrap();
                            assert_eq!(first, [word], "somebody else has it, too");
                            if n >= 38 {
                                left.push((buffer, word));
                            }
                        }
                        end(&sim, &alloc, stream);
                        for (buffer, word) in left.drain(..left.len().saturating_sub(6)) {
                            let mut first = [0];
                            buffer.read_at(0, &mut first).unwrap();
                            assert_eq!(first, [word], "somebody else has it, too");
                        }
                    }
                });
            }
        });
        let all = alloc.stats().all();
        assert_eq!((all.allocation.current, all.allocation.allocated), (0, 12 * 60 * 40));
        drop(alloc);
        assert_eq!((sim.live().bytes, sim.live().events), (0, 0));
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}
