//! What a reader of the channel sees is what the heap is, after every step.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;

use gpumem_channel::{BlockState, Options, Reader, SegmentMap};
use proptest::prelude::*;

use crate::config::SegmentMode;
use crate::device::{Sim, SimConfig, Timeline};
use crate::heap::tests::campaign;
use crate::heap::tests::model::World;
use crate::heap::tests::program::{Op, config, program};
use crate::heap::tests::streams::insist;
use crate::heap::*;
use crate::lane::{Front, State};
use crate::publish::{Publish, watch};
use crate::rounding::Divisions;
use crate::stream::Stream;
use crate::tag::Tag;

/// A directory that a channel accepts.
fn dir() -> tempfile::TempDir {
    let private = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new()
        .permissions(private)
        .tempdir_in("/dev/shm")
        .unwrap()
}

fn options(dir: &tempfile::TempDir, blocks: u32) -> Options {
    Options {
        dir: Some(dir.path().to_owned()),
        blocks,
        events: 1024,
        strings: 16,
        ..Options::default()
    }
}

fn compare(heap: &Heap, maps: &[std::sync::Arc<SegmentMap>]) {
    let mut published: Vec<_> = maps.iter().collect();
    published.sort_by_key(|map| map.slot);
    let segments: Vec<_> = heap.segments.iter().filter(|(_, segment)| segment.size > 0).collect();
    assert_eq!(published.len(), segments.len());
    for (map, (slot, segment)) in published.into_iter().zip(segments) {
        assert!(map.complete);
        assert_eq!(
            (map.slot, map.segment.addr, map.segment.size),
            (slot, segment.addr, segment.size)
        );
        assert_eq!(
            (map.segment.mapped, map.segment.kind),
            (segment.mapped, heap.kind_of(segment))
        );
        let mut b = segment.first;
        for shown in map.blocks.iter() {
            let block = &heap.blocks[b];
            // Of what is lent the lane knows more.
            let (state, requested, tag) = match heap.record_of(b) {
                Some(record) if record.state == State::Held => (BlockState::Allocated, record.requested, record.tag),
                Some(_) => (BlockState::Quick, 0, StringId(0)),
                None => (block.state, block.requested, block.tag),
            };
            assert_eq!((shown.addr, shown.size, shown.state), (block.addr, block.size, state));
            assert_eq!((shown.requested, shown.segment, shown.tag), (requested, slot, tag));
            assert_eq!(shown.stream, heap.streams.name(block.stream).0);
            b = block.next;
        }
        assert_eq!(b, NIL);
    }
}

/// What lies before a place that is taken again becomes an inactive split, which no event tells.
#[test]
fn a_place_that_is_taken_again_leaves_figures_that_are_published() {
    let dir = dir();
    let config = Config {
        publish: Publish::On(options(&dir, 4096)),
        segments: SegmentMode::Plain,
        // Sizes that only the heap can round are not lent.
        roundup_power2_divisions: Divisions::all(2).unwrap(),
        ..Config::default()
    };
    let driver = Sim::new(SimConfig::default()).device().driver;
    let mut heap = Heap::new(driver, &config, Front::alone()).unwrap();
    let mut reader = Reader::open(heap.outlet().path().unwrap()).unwrap();
    let [first, second, _held] = [(); 3].map(|()| heap.allocate(2 << 20, Stream(1), Tag(0)).unwrap());
    heap.free(first.block);
    let mut taken = second;
    // At first it is a new peak, which is published whatever else is.
    for _ in 0..2 {
        heap.free(taken.block);
        taken = heap.allocate(2 << 20, Stream(1), Tag(0)).unwrap();
        assert_eq!(
            (taken.addr, heap.stats().large.inactive_split.current),
            (second.addr, 2)
        );
        assert_eq!(reader.refresh().unwrap().devices[0].stats, Some(heap.stats()));
    }
}

/// What a stream left in its lane is still its own when the lane is another stream's.
#[test]
fn a_block_of_a_stream_that_has_ended_is_shown_as_its_own() {
    let dir = dir();
    let config = Config {
        publish: Publish::On(options(&dir, 64)),
        ..Config::default()
    };
    let driver = Sim::new(SimConfig::default()).device().driver;
    let mut heap = Heap::new(driver, &config, Front::alone()).unwrap();
    let mut reader = Reader::open(heap.outlet().path().unwrap()).unwrap();
    let held = insist(&mut heap, Stream(11));
    heap.retire_stream(Stream(11)).unwrap();
    let other = insist(&mut heap, Stream(12));
    assert_eq!(
        held.held.lane().map(|(lane, _)| lane),
        other.held.lane().map(|(lane, _)| lane)
    );
    heap.show(held.block);
    let snapshot = reader.refresh().unwrap();
    compare(&heap, &snapshot.devices[0].segments);
    assert_eq!((snapshot.lanes.len(), snapshot.lanes[0].stream), (1, 12));
    assert_eq!(snapshot.devices[0].stats, Some(heap.stats()));
}

/// Free blocks of a stream that stand side by side are one, and blocks tile their segment.
fn assert_possible(maps: &[std::sync::Arc<SegmentMap>]) {
    for map in maps.iter().filter(|map| map.complete) {
        let mut at = map.segment.addr;
        let mut before = None;
        for block in map.blocks.iter() {
            assert_eq!(block.addr, at, "a hole, or two at one place");
            let free = (block.state == BlockState::Free).then_some(block.stream);
            assert!(
                free.is_none() || free != before,
                "two free ones side by side: {block:?}"
            );
            (at, before) = (block.addr + block.size, free);
        }
        assert_eq!(at, map.segment.addr + map.segment.size);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: campaign(60), ..ProptestConfig::default() })]

    #[test]
    fn the_channel_shows_the_heap(config in config(), ops in program(60)) {
        let dir = dir();
        let config = Config { publish: Publish::On(options(&dir, 4096)), ..config };
        let mut world = World::new(&config, Timeline::Manual);
        let path = world.heap.outlet().path().unwrap().to_owned();
        let mut reader = Reader::open(&path).unwrap();
        for op in &ops {
            world.step(op).unwrap();
            let snapshot = reader.refresh().unwrap();
            prop_assert_eq!(snapshot.devices.len(), 1);
            prop_assert_eq!(snapshot.devices[0].device.budget, world.heap.budget().unwrap_or(0));
            prop_assert_eq!(snapshot.devices[0].stats, Some(world.heap.stats()));
            prop_assert_eq!(snapshot.devices[0].contradiction, None);
            compare(&world.heap, &snapshot.devices[0].segments);
        }
        world.end();
    }

    /// Whoever is killed leaves what was published last.
    #[test]
    fn nothing_impossible_is_shown_between_two_publications(config in config(), mut ops in program(60)) {
        // Two streams of one handle, of which the first one has ended, look the same.
        ops.retain(|op| !matches!(op, Op::Retire { .. }));
        let dir = dir();
        let config = Config { publish: Publish::On(options(&dir, 4096)), ..config };
        let mut world = World::new(&config, Timeline::Manual);
        world.steady = true;
        let mut reader = Reader::open(world.heap.outlet().path().unwrap()).unwrap();
        let _watched = watch::at_each(move || {
            let snapshot = reader.refresh().unwrap();
            for device in &snapshot.devices {
                assert_possible(&device.segments);
                assert_eq!(device.contradiction, None, "of an honest publisher");
            }
        });
        for op in &ops {
            world.step(op).unwrap();
        }
        world.end();
    }
}
