//! Requests that hit the cache share clock readings; the tests bound the error of their times.

use std::time::Duration;

use gpumem_channel::{
    Block, BlockState, Device, DeviceStats, Event, EventKind, Operation, Publisher, Reader, Segment, Split, Touched,
};

use crate::common::{channel_dir, options};

const SMALL: u64 = 4096;
const BIG: u64 = 256 << 20;
/// The last block is big.
const SIZES: [u64; 9] = [SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, BIG];
const PAUSE: Duration = Duration::from_millis(100);

fn block(slot: usize, state: BlockState) -> Block {
    Block {
        addr: (1 << 40) + SIZES[..slot].iter().sum::<u64>(),
        size: SIZES[slot],
        requested: if state == BlockState::Free { 0 } else { SIZES[slot] },
        state,
        ..Block::default()
    }
}

fn next(slot: usize) -> Option<u32> {
    (slot + 1 < SIZES.len()).then_some(slot as u32 + 1)
}

/// Publishes one segment of free blocks.
fn publish(dir: &std::path::Path) -> Publisher {
    let mut publisher = Publisher::create(&options(dir)).unwrap();
    publisher.set_device(0, &Device::default());
    publisher.segment_begin(0);
    for slot in 0..SIZES.len() {
        assert!(publisher.block(slot as u32, &block(slot, BlockState::Free), next(slot)));
    }
    let size = SIZES.iter().sum();
    let segment = Segment {
        addr: 1 << 40,
        size,
        mapped: size,
        ..Segment::default()
    };
    publisher.segment_end(0, Some((&segment, Some(0))));
    publisher
}

fn allocate(publisher: &mut Publisher, slot: usize) {
    let stats = DeviceStats::default();
    let block = block(slot, BlockState::Allocated);
    let operation = Operation {
        kind: EventKind::Alloc,
        slot: slot as u32,
        state: block.state,
        block: &block,
        next: next(slot),
        split: Split::NO,
    };
    let published = publisher.operation(&operation);
    assert!(published.stored);
    if published.figures_due {
        publisher.stats(0, &stats, Touched::SMALL);
    }
}

/// Returns when the blocks in `slots` were allocated, according to the map and to the last events.
fn times(reader: &mut Reader, slots: std::ops::Range<usize>) -> (Vec<u64>, Vec<u64>) {
    let snapshot = reader.refresh().unwrap();
    let blocks = &snapshot.devices[0].segments[0].blocks;
    let of_blocks = blocks[slots].iter().map(|block| block.time).collect();
    let events = reader.events().unwrap().events;
    (of_blocks, events.iter().map(|event| event.time).collect())
}

#[test]
fn fourth_request_after_a_pause_has_the_right_time() {
    let dir = channel_dir();
    let mut publisher = publish(dir.path());
    let mut reader = Reader::open(publisher.path()).unwrap();
    allocate(&mut publisher, 0);
    let before = times(&mut reader, 0..1).0[0];
    std::thread::sleep(PAUSE);
    for slot in 1..6 {
        allocate(&mut publisher, slot);
    }
    let (blocks, events) = times(&mut reader, 1..6);
    assert_eq!(blocks, events);
    assert!(blocks.is_sorted());
    let after = before + PAUSE.as_nanos() as u64 / 2;
    let late = blocks.iter().filter(|time| **time < after).count();
    assert!(
        late <= 3,
        "only those that share the reading before the pause: {blocks:?}"
    );
}

#[test]
fn slow_requests_each_read_the_clock() {
    let dir = channel_dir();
    let mut publisher = publish(dir.path());
    let mut reader = Reader::open(publisher.path()).unwrap();
    for slot in 0..5 {
        std::thread::sleep(PAUSE / 2);
        allocate(&mut publisher, slot);
    }
    let (blocks, events) = times(&mut reader, 0..5);
    assert_eq!(blocks, events);
    let step = PAUSE.as_nanos() as u64 / 4;
    assert!(blocks.windows(2).all(|pair| pair[1] > pair[0] + step), "{blocks:?}");
}

#[test]
fn large_blocks_and_other_events_read_the_clock() {
    let dir = channel_dir();
    let mut publisher = publish(dir.path());
    let mut reader = Reader::open(publisher.path()).unwrap();
    let pause = PAUSE.as_nanos() as u64 / 2;
    allocate(&mut publisher, 0);
    let last = times(&mut reader, 0..1).0[0];
    std::thread::sleep(PAUSE);
    allocate(&mut publisher, 8);
    assert!(times(&mut reader, 8..9).0[0] > last + pause, "a large block");

    for slot in 1..4 {
        allocate(&mut publisher, slot);
    }
    let last = times(&mut reader, 3..4).0[0];
    std::thread::sleep(PAUSE);
    publisher.event(&Event {
        kind: EventKind::Mark,
        ..Event::default()
    });
    assert!(times(&mut reader, 0..1).1[0] > last + pause, "a mark");
}
