//! What may go back: against a walk over all blocks, and beside views that stay.
#![allow(clippy::unwrap_used, clippy::panic)]

use gpumem_channel::StringId;

use super::*;
use crate::config::{Config, SegmentMode};
use crate::device::{Call, Sim, SimConfig};
use crate::error::Error;
use crate::heap::allocate::Request;
use crate::heap::ask::probe;
use crate::heap::block::NIL;
use crate::heap::stitch::runs::{Look, Run};
use crate::heap::stitch::view::GONE;
use crate::heap::stitch::view::tests::LOOKS;
use crate::heap::tests::heap_on;
use crate::heap::turn::access::wait_for_device;
use crate::heap::{Attempt, begin_capture};
use crate::report::Help;
use crate::size::Class;
use crate::stream::Stream;
use crate::tag::Tag;

const MIB: u64 = 1 << 20;

impl Heap {
    /// Panics unless what may go back of virtual segments is what a walk finds, in its order.
    pub(in crate::heap) fn check_spare(&self) {
        let is_virtual = |segment: &Segment| segment.kind == SegmentKind::Virtual;
        let kept = self.kept_slowly();
        let mut walked = Vec::new();
        for (slot, segment) in self.segments.iter().filter(|(_, segment)| is_virtual(segment)) {
            self.walk_chunks(slot, segment, &kept, &mut walked);
        }
        assert_eq!(format!("{:?}", self.spare_in(is_virtual)), format!("{walked:?}"));
    }

    /// Where the chunks are at home that views go on mapping, by a look at every block for each.
    fn kept_slowly(&self) -> HashSet<u64> {
        let blocks: Vec<_> = self.views.all_stitched().collect();
        let mut kept = HashSet::new();
        for (number, view) in self.views.iter() {
            let done = view.is_done(|stream| self.streams.line(stream).safe);
            let its = || blocks.iter().filter(|block| block.view == number);
            if !done || its().next().is_some() {
                kept.extend(&view.behind);
            }
            let mut from = view.range;
            for (home, size) in &view.chunks {
                let to = from + size;
                if !done || its().any(|block| block.addr < to && from < block.addr + block.size) {
                    kept.insert(*home);
                }
                from = to;
            }
        }
        kept.remove(&GONE);
        kept
    }

    fn walk_chunks(&self, slot: u32, segment: &Segment, kept: &HashSet<u64>, spare: &mut Vec<Going>) {
        let stale = segment.stale.iter();
        spare.extend(stale.map(|(addr, bytes)| Going::Stale {
            slot,
            addr: *addr,
            bytes: *bytes,
        }));
        let (mut b, mut left) = (segment.first, 0);
        while b != NIL {
            let block = &self.blocks[b];
            if block.state != BlockState::Unmapped {
                left += block.size;
            }
            if block.state == BlockState::Free && self.is_unused(b) {
                let within = segment.chunks_within(block.addr, block.addr + block.size);
                let chunks: Vec<(u64, Chunk)> = within.filter(|(addr, _)| !kept.contains(addr)).collect();
                for run in chunks.chunk_by(|(addr, chunk), (next, _)| addr + chunk.size == *next) {
                    left -= run.iter().map(|(_, chunk)| chunk.size).sum::<u64>();
                    spare.push(Going::Chunks {
                        slot,
                        block: b,
                        run: run.to_vec(),
                    });
                }
            }
            b = block.next;
        }
        if left == 0 {
            spare.push(range(slot, segment));
        }
    }
}

/// The end of a view could not be unmapped, and a block is in the view.
#[test]
fn a_chunk_that_is_mapped_in_a_view_which_stays_does_not_go() {
    let sim = Sim::new(SimConfig::default());
    let config = Config {
        max_chunk: 8 * MIB,
        ..Config::default()
    };
    let mut heap = heap_on(&sim, config);
    let mut take = |mib| heap.allocate(mib * MIB, Stream(1), Tag(0)).unwrap();
    let held = [8; 7].map(&mut take);
    for at in [1, 3, 5] {
        heap.free(held[at].block);
    }
    let _whole = heap.allocate(24 * MIB, Stream(1), Tag(0)).unwrap();
    let (view, _) = heap.views.iter().next().unwrap();
    heap.free(held[2].block);
    heap.wait_for_device().unwrap();
    let goes = |heap: &Heap| {
        let chunks = heap.spare().into_iter().filter_map(|going| match going {
            Going::Chunks { run, .. } => Some(run),
            _ => None,
        });
        chunks.flatten().map(|(home, _)| home).collect::<Vec<u64>>()
    };
    let homes = goes(&heap);
    assert!(!homes.is_empty());
    heap.views.leave(view, 8 * MIB, homes.into_iter());
    assert!(goes(&heap).is_empty());
}

/// A heap of 72 MiB in blocks of 8 and a block of 16 in the middle of a view of 32; the numbers of the others, that of the one, what is
/// stitched, and the view.
fn block_in_the_middle_of_a_view(sim: &Sim) -> (Heap, Vec<u32>, u32, u32, u32) {
    let config = Config {
        max_chunk: 8 * MIB,
        ..Config::default()
    };
    let mut heap = heap_on(sim, config);
    let mut take = |mib| heap.allocate(mib * MIB, Stream(1), Tag(0)).unwrap().block;
    let mut held = Vec::from([8; 9].map(&mut take));
    for at in [7, 5, 3, 1] {
        heap.free(held.remove(at));
    }
    let whole = heap.allocate(32 * MIB, Stream(1), Tag(0)).unwrap();
    assert_eq!(sim.live().bytes, 72 * MIB, "of what was free");
    let (view, _) = heap.views.iter().next().unwrap();
    heap.free(whole.block);
    let stream = heap.streams.known(Stream(1)).unwrap();
    heap.drain(stream, 1);
    let run = heap.run_in_views((16 * MIB, Look::All), stream).unwrap();
    let offset = run.offset + 8 * MIB;
    let (stitched, pieces) = heap.place_in(Run { offset, ..run }, 16 * MIB);
    let request = Request::common(16 * MIB, (16 * MIB, Class::Chunked), stream, (Tag(0), StringId(0)));
    let middle = heap.hand_out_stitched(stitched, &pieces, &request).block;
    (heap, held, middle, stitched, view)
}

/// A small block that is placed in a large view must not keep all of the view's memory: what the view maps before it and behind it goes.
#[test]
fn a_block_in_a_view_keeps_no_more_than_its_own_chunks() {
    let sim = Sim::new(SimConfig::default());
    let (mut heap, held, middle, stitched, view) = block_in_the_middle_of_a_view(&sim);
    let mapped = |heap: &Heap| heap.views.view(view).map_or(0, View::mappings);
    assert_eq!(mapped(&heap), 8);
    let before = heap.views.placement_of(stitched);
    assert_eq!(heap.release_cached().unwrap(), 16 * MIB);
    heap.check();
    assert_eq!(mapped(&heap), 4);
    assert_ne!(
        heap.views.placement_of(stitched),
        before,
        "nobody goes where the whole view was needed"
    );
    held.into_iter().chain([middle]).for_each(|b| heap.free(b));
    heap.release_cached().unwrap();
    assert_eq!((sim.live().bytes, sim.live().ranges), (0, 0));
    assert_eq!(sim.violations(), [""; 0]);
}

/// A program whose cache is of pages had one block of most of them, and has many of a few now.
#[test]
fn of_many_blocks_in_a_large_view_each_chunk_is_not_compared_with_all() {
    let sim = Sim::new(SimConfig::default());
    let config = Config {
        max_chunk: 2 * MIB,
        ..Config::default()
    };
    let mut heap = heap_on(&sim, config);
    heap.views.most = usize::MAX;
    let allocate = |heap: &mut Heap, mib| heap.allocate(mib * MIB, Stream(1), Tag(0)).unwrap().block;
    let pages: Vec<u32> = (0..2000).map(|_| allocate(&mut heap, 2)).collect();
    pages.iter().step_by(2).for_each(|b| heap.free(*b));
    let whole = allocate(&mut heap, 2000);
    heap.free(whole);
    let blocks: Vec<u32> = (0..200).map(|_| allocate(&mut heap, 10)).collect();
    blocks.iter().step_by(3).for_each(|b| heap.free(*b));
    heap.wait_for_device().unwrap();
    let (_, view) = heap.views.iter().next().unwrap();
    assert_eq!((heap.views.iter().count(), view.chunks.len()), (1, 1000));
    LOOKS.set(0);
    assert!(!heap.spare().is_empty());
    assert!(LOOKS.get() < 20_000, "{} looks", LOOKS.get());
    heap.check();
}

/// Nor the memory, while it may be mapped there, nor the address range of a view of which anything is.
#[test]
fn nothing_goes_of_a_view_before_what_is_left_of_its_parts() {
    let sim = Sim::new(SimConfig::default());
    let (mut heap, held, middle, ..) = block_in_the_middle_of_a_view(&sim);
    sim.fail_next(Call::Unmap, 1);
    heap.release_cached().unwrap_err();
    heap.check();
    assert_eq!(sim.live().bytes, 72 * MIB, "it may be mapped in the view");
    held.into_iter().chain([middle]).for_each(|b| heap.free(b));
    heap.wait_for_device().unwrap();
    heap.views.most = 0;
    assert!(heap.views_beyond(1).is_empty(), "its range would have to go");
    // What is left of the part stays once more, and the view with it.
    sim.fail_next(Call::Unmap, 1);
    heap.release_cached().unwrap_err();
    heap.check();
    assert_eq!(sim.violations(), [""; 0]);
    // Both begin at one address, and what is done with one is not done with the other.
    let left = heap.views.stale.clone();
    let part = *left.iter().find(|left| left.bytes == 0).unwrap();
    assert!(left.iter().any(|whole| whole.bytes > 0 && whole.range == part.range));
    assert_eq!(
        left.iter()
            .filter(|left| Going::left(**left).key() == Going::left(part).key())
            .count(),
        1
    );
    heap.set_apart(&mut [Going::left(part)]);
    assert_eq!(heap.views.stale.len(), left.len() - 1);
    heap.views.stale = left;
    heap.release_cached().unwrap();
    assert_eq!((sim.live().bytes, sim.live().ranges), (0, 0));
    assert_eq!(sim.violations(), [""; 0]);
}

/// Streams come and go, so what a stream does not use is nobody's at once and joins what is nobody's beside it: not while it is chosen to go.
#[test]
fn what_is_chosen_to_go_stays_as_it_is_until_it_goes() {
    let sim = Sim::new(SimConfig {
        total: 100 * MIB,
        used_by_others: 20 * MIB,
        ..SimConfig::default()
    });
    let config = Config {
        segments: SegmentMode::Virtual,
        ..Config::default()
    };
    let mut heap = heap_on(&sim, config);
    let mut held = [1, 2, 3].map(|stream| heap.allocate(20 * MIB, Stream(stream), Tag(0)).unwrap().block);
    heap.free(std::mem::replace(&mut held[2], NIL));
    let mut attempt = heap.attempt(COMMON, 60 * MIB, Stream(1), Tag(0));
    let mut calls = 0;
    // As who has the turn makes the calls.
    while let Attempt::Suspended(mut suspended) = attempt {
        if suspended.needs_turn() {
            heap.begin_call(&mut suspended);
            calls += 1;
        }
        // The third block goes. Meanwhile the others come free, and it is known that nothing uses them any more.
        if calls == 2 && held[0] != NIL {
            held[..2].iter().for_each(|b| heap.free(*b));
            held = [NIL; 3];
            heap.retire_stream(Stream(2)).unwrap();
            probe(&mut heap, |heap| heap.streams.named(Stream(1)).collect()).unwrap();
        }
        heap.check();
        let made = suspended.run(&mut heap).unwrap();
        attempt = heap.resume(made);
        heap.check();
    }
    assert!(held[0] == NIL && matches!(attempt, Attempt::Done(Ok(_))), "{attempt:?}");
    assert_eq!(sim.live().bytes, 60 * MIB);
}

/// The range is all free only after its first chunks were tried.
#[test]
fn a_range_does_not_go_while_the_driver_keeps_what_is_mapped_there() {
    let sim = Sim::new(SimConfig {
        total: 80 * MIB,
        used_by_others: 30 * MIB,
        ..SimConfig::default()
    });
    let config = Config {
        segments: SegmentMode::Virtual,
        ..Config::default()
    };
    let mut heap = heap_on(&sim, config);
    let [first, second] = [(); 2].map(|()| heap.allocate(20 * MIB, Stream(1), Tag(0)).unwrap().block);
    heap.free(first);
    sim.fail_next(Call::Unmap, 1);
    let mut attempt = heap.attempt(COMMON, 60 * MIB, Stream(1), Tag(0));
    let mut held = Some(second);
    while let Attempt::Suspended(mut suspended) = attempt {
        if suspended.needs_turn() {
            heap.begin_call(&mut suspended);
        }
        let made = suspended.run(&mut heap).unwrap();
        if sim.calls(Call::Unmap) > 0
            && let Some(b) = held.take()
        {
            heap.free(b);
            probe(&mut heap, |heap| heap.streams.named(Stream(1)).collect()).unwrap();
        }
        attempt = heap.resume(made);
        heap.check();
    }
    assert!(held.is_none() && matches!(attempt, Attempt::Done(Err(Error::OutOfMemory(_)))));
    assert_eq!(sim.violations(), [""; 0]);
    heap.release_cached().unwrap();
    assert_eq!((sim.live().bytes, sim.live().ranges), (0, 0));
}

/// The device was waited for, so that a request may give its cache back; but then it waits for its turn.
#[test]
fn nothing_goes_once_a_capture_has_begun() {
    let sim = Sim::new(SimConfig::default());
    let config = Config {
        segments: SegmentMode::Plain,
        budget: Some(100 * MIB),
        ..Config::default()
    };
    let mut heap = heap_on(&sim, config);
    let cached = heap.allocate(40 * MIB, Stream(1), Tag(0)).unwrap();
    heap.free(cached.block);
    wait_for_device(&mut heap).unwrap();
    // What is free beside it has the driver asked, and the request suspended.
    heap.allocate(4096, Stream(3), Tag(0)).unwrap();
    let mut attempt = heap.attempt(COMMON, 80 * MIB, Stream(1), Tag(0));
    while let Attempt::Suspended(mut suspended) = attempt {
        attempt = match suspended.needs_turn() {
            true if !heap.capturing() => {
                begin_capture(&mut heap).unwrap();
                heap.resume_anew(*suspended)
            }
            needs_turn => {
                if needs_turn {
                    heap.begin_call(&mut suspended);
                }
                let made = suspended.run(&mut heap).unwrap();
                heap.resume(made)
            }
        };
    }
    let Attempt::Done(Err(Error::OutOfMemory(report))) = attempt else {
        panic!("{attempt:?}");
    };
    assert_eq!(report.helps[0], Help::EndCapture, "{report}");
    assert!(
        heap.capturing() && sim.violations().is_empty(),
        "{:?}",
        sim.violations()
    );
}
