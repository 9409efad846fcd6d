//! Reuse across streams, on a device whose streams finish when told.

use gpumem_alloc::device::{Call, Sim, Timeline};
use gpumem_alloc::{Allocator, Config, SegmentMode, Stream};

use crate::common::{MIB, sharing, start};

const A: Stream = Stream(10);
const B: Stream = Stream(20);

fn both(test: impl Fn(Sim, Allocator)) {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual] {
        let (sim, alloc) = start(1 << 30, Timeline::Manual, sharing(segments));
        test(sim, alloc);
    }
}

#[test]
fn the_same_stream_reuses_at_once() {
    both(|sim, alloc| {
        let first = alloc.alloc::<u8>(16 * MIB, A).unwrap();
        let addr = first.device_ptr();
        sim.enqueue(A, addr, 16 << 20);
        drop(first);
        assert_eq!(alloc.alloc::<u8>(16 * MIB, A).unwrap().device_ptr(), addr);
        assert_eq!(sim.calls(Call::Record), 0, "no event is needed");
    });
}

#[test]
fn an_idle_stream_needs_no_event() {
    both(|sim, alloc| {
        let first = alloc.alloc::<u8>(16 * MIB, A).unwrap();
        let addr = first.device_ptr();
        drop(first);
        assert_eq!(alloc.alloc::<u8>(16 * MIB, B).unwrap().device_ptr(), addr);
        let calls = [Call::QueryStream, Call::Record, Call::Query].map(|call| sim.calls(call));
        assert_eq!(calls, [1, 0, 0]);
    });
}

#[test]
fn another_stream_reuses_after_the_event_and_before_new_memory_is_taken() {
    both(|sim, alloc| {
        let first = alloc.alloc::<u8>(16 * MIB, A).unwrap();
        let addr = first.device_ptr();
        sim.enqueue(A, addr, 16 << 20);
        drop(first);
        let other = alloc.alloc::<u8>(16 * MIB, B).unwrap();
        assert_ne!(other.device_ptr(), addr, "A still works on it");
        let reserved = alloc.stats().all().reserved_bytes.current;
        sim.finish(A);
        let reused = alloc.alloc::<u8>(16 * MIB, B).unwrap();
        assert_eq!(reused.device_ptr(), addr);
        assert_eq!(alloc.stats().all().reserved_bytes.current, reserved);
        // B gives it back; A gets it when B is done, without new memory.
        sim.enqueue(B, addr, 16 << 20);
        drop(reused);
        let mine = alloc.alloc::<u8>(16 * MIB, A).unwrap();
        assert_ne!(mine.device_ptr(), addr, "B still works on it");
        drop(mine);
        sim.finish(A);
        sim.finish(B);
        let (x, y) = (
            alloc.alloc::<u8>(16 * MIB, A).unwrap(),
            alloc.alloc::<u8>(16 * MIB, A).unwrap(),
        );
        assert!(x.device_ptr() == addr || y.device_ptr() == addr);
    });
}

#[test]
fn a_block_used_elsewhere_waits_for_every_other_stream() {
    both(|sim, alloc| {
        let block = alloc.alloc::<u8>(16 * MIB, A).unwrap();
        let addr = block.device_ptr();
        for stream in [A, B, Stream(30), B] {
            block.record_stream(stream).unwrap();
        }
        sim.enqueue(B, addr, 16 << 20);
        sim.enqueue(Stream(30), addr, 16 << 20);
        drop(block);
        assert_eq!(sim.calls(Call::Record), 2, "one event per other stream");
        let all = alloc.stats().all();
        assert_eq!((all.allocation.current, all.active.current), (0, 1));
        assert_eq!((all.allocated_bytes.current, all.active_bytes.current), (0, 16 << 20));
        assert_eq!(
            all.requested_bytes.current,
            16 << 20,
            "PyTorch counts it until the free is complete"
        );
        sim.finish(B);
        assert_ne!(
            alloc.alloc::<u8>(16 * MIB, A).unwrap().device_ptr(),
            addr,
            "one stream is not done"
        );
        sim.finish(Stream(30));
        alloc.poll();
        assert_eq!(alloc.stats().all().active.current, 0);
        let again: Vec<_> = (0..2).map(|_| alloc.alloc::<u8>(16 * MIB, A).unwrap()).collect();
        assert!(again.iter().any(|block| block.device_ptr() == addr));
    });
}

#[test]
fn a_free_that_names_another_stream_waits_for_it() {
    both(|sim, alloc| {
        let take = || alloc.alloc_raw(16 << 20, A).unwrap();
        let (here, there) = (take(), take());
        sim.enqueue(B, there, 16 << 20);
        assert!(alloc.free_raw_after(there, 7, B).is_err(), "of another device");
        alloc.free_raw_after(here, 0, A).unwrap();
        alloc.free_raw_after(there, 0, B).unwrap();
        assert!(alloc.free_raw_after(there, 0, B).is_err(), "freed before");
        assert_eq!(alloc.stats().all().active.current, 1, "it waits for the other stream");
        sim.finish(B);
        alloc.poll();
        assert_eq!(alloc.stats().all().active.current, 0);
    });
}

#[test]
fn borrowed_parts_come_home_and_the_segment_is_whole_again() {
    let (sim, alloc) = start(1 << 30, Timeline::After(5), sharing(SegmentMode::Plain));
    drop(alloc.alloc::<u8>(64 * MIB, A).unwrap());
    let parts: Vec<_> = (0..4).map(|_| alloc.alloc::<u8>(16 * MIB, B).unwrap()).collect();
    assert_eq!(sim.calls(Call::Alloc), 1, "B cuts what A left");
    drop(parts);
    let whole = alloc.alloc::<u8>(64 * MIB, A).unwrap();
    assert_eq!(sim.calls(Call::Alloc), 1);
    drop(whole);
    assert_eq!(alloc.release_cached().unwrap(), 64 << 20);
}

/// Of one row what is a stream's own and what is nobody's take turns: all of it is one block for who may have both. Where pieces are stitched
/// that matters only when there is no other memory.
#[test]
fn idle_memory_side_by_side_serves_whoever_gave_it_back() {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        let full = segments == SegmentMode::Stitched;
        let config = Config {
            release_on_oom: !full,
            ..sharing(segments)
        };
        let (sim, alloc) = start(if full { 18 * MIB } else { 1 << 30 }, Timeline::Immediate, config);
        // So that requests of both streams are known, and neither takes the memory of another one first.
        drop(alloc.alloc::<u8>(100, B).unwrap());
        alloc.reserve(16 << 20, A).unwrap();
        // In stitched memory no more than 8 MiB lie where they fit best.
        let more = if full { MIB / 2 } else { 0 };
        let first = alloc.alloc::<u8>(4 * MIB + more, A).unwrap();
        let second = alloc.alloc::<u8>(4 * MIB, B).unwrap();
        let third = alloc.alloc::<u8>(8 * MIB - more, A).unwrap();
        drop((first, second, third));
        let reserved = sim.live().bytes;
        let _all = alloc.alloc::<u8>(16 * MIB, A).unwrap();
        assert_eq!(sim.live().bytes, reserved, "{segments:?}");
    }
}

#[test]
fn threads_share_an_allocator() {
    let (sim, alloc) = start(1 << 30, Timeline::Manual, sharing(SegmentMode::Virtual));
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let alloc = alloc.clone();
            scope.spawn(move || {
                let _scope = gpumem_alloc::scope(if thread % 2 == 0 { "even" } else { "odd" });
                let mut held = Vec::new();
                for i in 0..500u64 {
                    let bytes = 1 + (thread * 7919 + i * 104_729) % (4 << 20);
                    held.push(alloc.alloc::<u8>(bytes as usize, Stream(thread % 3)).unwrap());
                    if held.len() > 8 {
                        drop(held.swap_remove((i % 8) as usize));
                    }
                }
            });
        }
    });
    let all = alloc.stats().all();
    assert_eq!((all.allocation.current, all.allocation.allocated), (0, 4000));
    drop(alloc);
    assert_eq!((sim.live().bytes, sim.live().events), (0, 0));
    assert_eq!(sim.violations(), Vec::<String>::new());
}
