#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::Config;
use crate::device::{Call, Sim, SimConfig, Timeline};
use crate::heap::retire::retire_stream;
use crate::heap::tests::heap_on;
use crate::stream::Stream;
use crate::tag::Tag;

const MIB: u64 = 1 << 20;

/// It is free in one piece all the same; until the driver unmaps it where it was, none of it can go back.
#[test]
fn what_cannot_be_unmapped_is_told() {
    let (sim, mut heap) = start(SegmentMode::Virtual);
    let held = holes(&mut heap);
    sim.fail_next(Call::Unmap, u64::MAX);
    let refused = heap.compact();
    assert!(
        matches!(&refused, Err(Error::Device(error)) if error.call == "cuMemUnmap"),
        "{refused:?}"
    );
    assert_eq!(heap.free_blocks().largest, 80 * MIB);
    heap.check();
    sim.fail_next(Call::Unmap, 0);
    assert_eq!(heap.compact().unwrap().bytes_moved, 0);
    heap.release_cached().unwrap();
    held.into_iter().for_each(|b| heap.free(b));
    heap.release_cached().unwrap();
    heap.check();
    assert_eq!((sim.live().bytes, sim.violations()), (0, vec![]));
}

/// A way to a heap whose streams end before one of its visits, and are forgotten.
struct Ending<'a> {
    heap: &'a mut Heap,
    visits_before: u32,
}

impl Access for Ending<'_> {
    fn heap<R>(&mut self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        if self.visits_before == 0 {
            for name in 1..=20 {
                retire_stream(self.heap, Stream(name))?;
            }
        }
        self.visits_before = self.visits_before.wrapping_sub(1);
        Ok(work(self.heap))
    }
}

fn start(segments: SegmentMode) -> (Sim, Heap) {
    start_on(Timeline::Manual, segments)
}

fn start_on(timeline: Timeline, segments: SegmentMode) -> (Sim, Heap) {
    let sim = Sim::new(SimConfig {
        total: 1000 * MIB,
        timeline,
        ..SimConfig::default()
    });
    let config = Config {
        segments,
        max_chunk: 8 * MIB,
        cross_stream_reuse: true,
        ..Config::default()
    };
    let heap = heap_on(&sim, config);
    (sim, heap)
}

/// Blocks of 16 MiB, every other one of them free, and a free small one.
fn holes(heap: &mut Heap) -> Vec<u32> {
    let mut take = |bytes: u64| heap.allocate(bytes, Stream(1), Tag(0)).unwrap().block;
    let (small, blocks) = (take(1000), (0..10).map(|_| take(16 * MIB)).collect::<Vec<u32>>());
    heap.free(small);
    for b in blocks.iter().step_by(2) {
        heap.free(*b);
    }
    blocks.into_iter().skip(1).step_by(2).collect()
}

#[test]
fn whole_segments_go_back() {
    let (sim, mut heap) = start(SegmentMode::Plain);
    let held = holes(&mut heap);
    // Somebody found out meanwhile that the stream is done.
    heap.wait_for_device().unwrap();
    let waits = sim.calls(Call::Synchronize);
    let report = heap.compact().unwrap();
    heap.check();
    assert_eq!((report.released, report.driver_calls), (82 * MIB, 6));
    assert_eq!((report.before.total, report.after.total), (82 * MIB, 0));
    assert_eq!(
        (report.waited, sim.calls(Call::Synchronize)),
        (false, waits),
        "nothing was queued"
    );
    held.into_iter().for_each(|b| heap.free(b));
}

#[test]
fn free_chunks_lie_side_by_side_afterwards_and_stay() {
    let (sim, mut heap) = start(SegmentMode::Virtual);
    let held = holes(&mut heap);
    let report = heap.compact().unwrap();
    heap.check();
    let after = report.after;
    assert_eq!(
        (report.released, after.total, after.largest, after.count),
        (2 * MIB, 80 * MIB, 80 * MIB, 1)
    );
    assert_eq!((report.before.largest, report.before.count), (16 * MIB, 6));
    assert!(report.bytes_moved >= 64 * MIB && report.chunks_moved >= 8, "{report:?}");
    let calls = sim.total_calls();
    let again = heap.compact().unwrap();
    assert_eq!(
        (again.driver_calls, again.bytes_moved, sim.total_calls()),
        (0, 0, calls),
        "nothing is left to do"
    );
    let large = heap.allocate(80 * MIB, Stream(2), Tag(0)).unwrap();
    assert_eq!(sim.total_calls(), calls, "it fits, on any stream, without a call");
    held.into_iter().chain([large.block]).for_each(|b| heap.free(b));
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[test]
fn stitched_memory_gives_its_free_chunks_back() {
    let (sim, mut heap) = start(SegmentMode::Stitched);
    let held = holes(&mut heap);
    let (before, report) = (sim.live().bytes, heap.compact().unwrap());
    heap.check();
    assert_eq!(before - sim.live().bytes, report.released);
    assert!(report.released >= 64 * MIB && report.bytes_moved == 0, "{report:?}");
    held.into_iter().for_each(|b| heap.free(b));
}

/// Only for memory that queued work uses the device is waited for.
#[test]
fn what_the_gpu_still_uses_is_waited_for() {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        let (sim, mut heap) = start(segments);
        let busy = heap.allocate(30 * MIB, Stream(1), Tag(0)).unwrap();
        sim.enqueue(Stream(1), busy.addr, busy.size);
        assert!(!heap.compact().unwrap().waited, "it is held: no free memory is used");
        heap.free(busy.block);
        assert!(heap.compact().unwrap().waited);
        assert_eq!(sim.violations(), Vec::<String>::new());
        let shared = heap.allocate(30 * MIB, Stream(1), Tag(0)).unwrap();
        heap.record_use(shared.block, Stream(2), Default::default()).unwrap();
        sim.enqueue(Stream(2), shared.addr, shared.size);
        heap.free(shared.block);
        let report = heap.compact().unwrap();
        assert_eq!(
            (report.waited, report.after.total),
            (true, if segments == SegmentMode::Virtual { 30 * MIB } else { 0 })
        );
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}

/// Or a view that no block is in.
#[test]
fn a_view_that_the_gpu_still_uses_is_waited_for() {
    let (sim, mut heap) = start(SegmentMode::Stitched);
    assert!(!heap.compact().unwrap().waited, "there is nothing");
    let held = holes(&mut heap);
    let whole = heap.allocate(60 * MIB, Stream(1), Tag(0)).unwrap();
    assert_eq!(heap.views.iter().count(), 1);
    sim.enqueue(Stream(1), whole.addr, whole.size);
    heap.free(whole.block);
    // What it was made of is held again, at home.
    let again: Vec<u32> = (0..5)
        .map(|_| heap.allocate(16 * MIB, Stream(1), Tag(0)).unwrap().block)
        .collect();
    let report = heap.compact().unwrap();
    assert!(report.waited, "{report:?}");
    assert_eq!((heap.views.iter().count(), sim.violations()), (0, vec![]));
    assert!(!heap.compact().unwrap().waited, "nothing is queued any more");
    held.into_iter().chain(again).for_each(|b| heap.free(b));
    heap.check();
}

/// Compaction visits the heap again and again, and in between other threads go on.
#[test]
fn streams_may_end_at_any_moment() {
    for visits_before in 0..12 {
        let (sim, mut heap) = start_on(Timeline::Immediate, SegmentMode::Plain);
        let blocks: Vec<u32> = (1..=20)
            .map(|name| heap.allocate(16 * MIB / 10, Stream(name), Tag(0)).unwrap().block)
            .collect();
        blocks.into_iter().for_each(|b| heap.free(b));
        let mut on = Ending {
            heap: &mut heap,
            visits_before,
        };
        compact(&mut on).unwrap();
        assert!(
            heap.streams.all_retired().len() < 20,
            "{visits_before}: none was forgotten"
        );
        assert_eq!(sim.violations(), Vec::<String>::new(), "{visits_before}");
        heap.check();
    }
}
