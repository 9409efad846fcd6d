//! Lanes: data published beside the publisher appears as part of one channel.

use gpumem_channel::{
    Block, BlockState, DeviceStats, Event, EventKind, Lane, LaneFigures, Operation, PoolId, Publisher, Reader, Segment,
    Split, Stat, Touched,
};

use crate::common::{Count, channel_dir, operate, options, publisher};

const SIZE: u64 = 4096;
const REQUESTED: u64 = 4000;
/// Number of blocks of the only segment.
const BLOCKS: u32 = 8;

fn block(slot: u32, state: BlockState) -> Block {
    Block {
        addr: (1 << 40) + u64::from(slot) * SIZE,
        size: SIZE,
        requested: REQUESTED,
        stream: 7,
        state,
        ..Block::default()
    }
}

fn next(slot: u32) -> Option<u32> {
    (slot + 1 < BLOCKS).then_some(slot + 1)
}

/// Publishes a segment of free blocks.
fn segment(publisher: &mut Publisher) {
    publisher.segment_begin(0);
    for slot in 0..BLOCKS {
        let free = Block {
            requested: 0,
            ..block(slot, BlockState::Free)
        };
        assert!(publisher.block(slot, &free, next(slot)));
    }
    let size = u64::from(BLOCKS) * SIZE;
    let segment = Segment {
        addr: 1 << 40,
        size,
        mapped: size,
        ..Segment::default()
    };
    publisher.segment_end(0, Some((&segment, Some(0))));
}

/// A lane and its figures.
struct Counted {
    lane: Lane,
    figures: LaneFigures,
}

impl Counted {
    fn open(publisher: &mut Publisher, stream: u64) -> Counted {
        Counted {
            lane: publisher.lane(0, stream).unwrap(),
            figures: LaneFigures::default(),
        }
    }

    fn operate(&mut self, slot: u32, state: BlockState) {
        let small = &mut self.figures.small;
        let kind = if state == BlockState::Allocated {
            small.allocation.add(1);
            small.requested_bytes.add(REQUESTED);
            small.allocated_bytes.add(SIZE);
            EventKind::Alloc
        } else {
            small.allocation.sub(1);
            small.requested_bytes.sub(REQUESTED);
            small.allocated_bytes.sub(SIZE);
            EventKind::Free
        };
        let block = block(slot, state);
        let operation = Operation {
            kind,
            slot,
            state,
            block: &block,
            next: next(slot),
            split: Split::NO,
        };
        // For a block that is already in its slot, both calls publish the same.
        let published = if slot.is_multiple_of(2) {
            self.lane.operation(&operation)
        } else {
            self.lane.operation_again(&operation)
        };
        assert!(published.stored);
        if published.figures_due {
            self.lane.figures(&self.figures);
        }
    }
}

fn mark(size: u64) -> Event {
    Event {
        kind: EventKind::Mark,
        size,
        ..Event::default()
    }
}

#[test]
fn lane_and_publisher_are_shown_together() {
    let dir = channel_dir();
    let mut publisher = publisher(dir.path());
    segment(&mut publisher);
    let mut stats = DeviceStats::default();
    stats.small.reserved_bytes.add(u64::from(BLOCKS) * SIZE);
    for stat in [&mut stats.small.allocation, &mut stats.small.active] {
        stat.add(5);
        stat.peak = 8;
    }
    publisher.stats(0, &stats, Touched::ALL);
    let mut reader = Reader::open(publisher.path()).unwrap();
    assert_eq!(reader.refresh().unwrap().devices[0].stats, Some(stats));
    if rustix::process::geteuid().is_root() {
        // Another user's file is read instead of mapped.
        std::os::unix::fs::chown(publisher.path(), Some(12_345), None).unwrap();
    }
    let mut other = Reader::open(publisher.path()).unwrap();
    let mut lanes = [Counted::open(&mut publisher, 7), Counted::open(&mut publisher, 8)];
    // More events than can be deferred between two cells, on either side of a cell.
    for n in 0..40u32 {
        let slot = n % BLOCKS;
        lanes[n as usize % 2].operate(slot, BlockState::Allocated);
        let snapshot = reader.refresh().unwrap();
        let shown = snapshot.devices[0].stats.unwrap();
        let held = if n == 0 { 1 } else { 2 };
        assert_eq!(
            shown.small.allocation,
            Stat {
                current: 5 + held,
                peak: 8,
                allocated: 5 + u64::from(n) + 1
            }
        );
        assert_eq!(shown.small.active, shown.small.allocation);
        let bytes = &shown.small.allocated_bytes;
        assert_eq!((bytes.current, bytes.peak), (held * SIZE, held * SIZE));
        assert_eq!(shown.all_peaks[3], held * SIZE, "no peak is below its current value");
        assert_eq!(shown.small.reserved_bytes, stats.small.reserved_bytes);
        let map = &snapshot.devices[0].segments[0];
        assert!(map.complete);
        assert_eq!(map.blocks[slot as usize].requested, REQUESTED);
        for (view, counted) in snapshot.lanes.iter().zip(&lanes) {
            assert_eq!(view.figures, counted.figures);
        }
        let same = other.refresh().unwrap();
        assert_eq!((same.devices, same.lanes), (snapshot.devices, snapshot.lanes));
        if let Some(before) = n.checked_sub(1) {
            lanes[before as usize % 2].operate(before % BLOCKS, BlockState::Free);
        }
        reader.glance().unwrap();
    }
    lanes[1].operate(39 % BLOCKS, BlockState::Free);
    let last = reader.refresh().unwrap();
    assert_eq!(reader.events().unwrap().events, other.events().unwrap().events);
    assert_eq!(last.devices[0].stats.unwrap().small.allocation.current, 5);
    assert_eq!(last.event_count, 80);
    assert!(
        last.devices[0]
            .blocks()
            .all(|block| block.state == BlockState::Free && block.requested == 0)
    );
    let shown: Vec<_> = last
        .lanes
        .iter()
        .map(|lane| (lane.device, lane.stream, lane.open))
        .collect();
    assert_eq!(shown, [(0, 7, true), (0, 8, true)]);
    drop(lanes);
    let ended = reader.refresh().unwrap();
    assert!(ended.lanes.iter().all(|lane| !lane.open));
    assert_eq!(ended.devices[0].stats, last.devices[0].stats, "their counts stay");
}

#[test]
fn events_before_a_meeting_come_before_those_after() {
    let dir = channel_dir();
    let mut publisher = publisher(dir.path());
    let mut lane = publisher.lane(0, 7).unwrap();
    let mut reader = Reader::open(publisher.path()).unwrap();
    // All happen within a tick or two of the clock.
    for n in 0..40 {
        match n % 2 {
            0 => publisher.event(&mark(n)),
            _ => {
                operate(&mut lane, n);
            }
        }
        publisher.meet(&mut lane);
    }
    let events = reader.events().unwrap();
    assert_eq!(events.lost, 0);
    let shown: Vec<_> = events
        .events
        .iter()
        .map(|event| (event.size, event.lane, event.index))
        .collect();
    let expected: Vec<_> = (0..40).map(|n| (n, (n % 2 == 1).then_some(0), n / 2)).collect();
    assert_eq!(shown, expected);
    assert!(events.events.is_sorted_by_key(|event| event.time));
    assert!(reader.events().unwrap().events.is_empty());
}

#[test]
fn unordered_events_start_with_the_publishers() {
    let dir = channel_dir();
    let mut publisher = publisher(dir.path());
    let mut reader = Reader::open(publisher.path()).unwrap();
    let mut lanes = [publisher.lane(0, 7).unwrap(), publisher.lane(0, 8).unwrap()];
    // The rings hold 256 and 64 events.
    (0..100).for_each(|n| publisher.event(&mark(n)));
    for n in 0..100 {
        operate(&mut lanes[1], n);
    }
    let new = reader.events().unwrap();
    assert_eq!((new.lost, new.events.len()), (36, 164));
    assert!(new.events.is_sorted_by_key(|event| event.time));
    let of_lane: Vec<_> = new
        .events
        .iter()
        .filter(|event| event.lane == Some(1))
        .map(|event| event.index)
        .collect();
    assert_eq!(of_lane, (36..100).collect::<Vec<_>>());
    operate(&mut lanes[0], 1);
    let new = reader.events().unwrap();
    assert_eq!((new.lost, new.events.len(), new.events[0].lane), (0, 1, Some(0)));
    let snapshot = reader.refresh().unwrap();
    assert_eq!((snapshot.event_count, snapshot.events_lost), (201, 36));
}

#[test]
fn closed_lanes_are_not_reused() {
    let dir = channel_dir();
    let mut publisher = publisher(dir.path());
    let mut lanes: Vec<Lane> = std::iter::from_fn(|| publisher.lane(0, 7)).collect();
    assert_eq!(lanes.len(), options(dir.path()).lanes as usize);
    lanes[0].close();
    assert!(publisher.lane(0, 7).is_none(), "a closed lane is not reused");
    lanes[0].figures(&LaneFigures::default());
    assert!(!operation_due(&mut lanes[0]));
    let mut reader = Reader::open(publisher.path()).unwrap();
    assert_eq!(
        reader.refresh().unwrap().event_count,
        0,
        "nothing more is published on it"
    );
    let path = publisher.path().to_owned();
    drop(publisher);
    assert_eq!(reader.refresh().unwrap().life, gpumem_channel::Life::Closed);
    assert!(operation_due(&mut lanes[1]), "its memory is still mapped");
    assert_eq!(Reader::open(&path).unwrap().refresh().unwrap().event_count, 1);

    let dir = channel_dir();
    let none = gpumem_channel::Options {
        lanes: 0,
        ..options(dir.path())
    };
    let mut publisher = Publisher::create(&none).unwrap();
    assert!(publisher.lane(0, 7).is_none());
    publisher.event(&mark(1));
    let snapshot = Reader::open(publisher.path()).unwrap().refresh().unwrap();
    assert!(snapshot.lanes.is_empty() && snapshot.event_count == 1);
}

fn operation_due(lane: &mut Lane) -> bool {
    let operation = Operation {
        kind: EventKind::Alloc,
        slot: 0,
        state: BlockState::Allocated,
        block: &block(0, BlockState::Allocated),
        next: None,
        split: Split::of(PoolId::SMALL),
    };
    lane.operation(&operation).figures_due
}

/// When a block passes between heap and lane, one may be read before and the other after.
#[test]
fn negative_figure_is_shown_as_zero() {
    let dir = channel_dir();
    let mut publisher = publisher(dir.path());
    publisher.stats(0, &DeviceStats::default(), Touched::ALL);
    let mut lane = publisher.lane(0, 7).unwrap();
    operation_due(&mut lane);
    let stats = Reader::open(publisher.path()).unwrap().refresh().unwrap().devices[0]
        .stats
        .unwrap();
    assert_eq!(stats.small.inactive_split.current, 0);
    assert_eq!(stats.small.allocation.current, 1);
}

#[test]
fn block_passes_from_publisher_to_lane_and_back() {
    let dir = channel_dir();
    let mut publisher = publisher(dir.path());
    segment(&mut publisher);
    let mut lanes = [Counted::open(&mut publisher, 7), Counted::open(&mut publisher, 8)];
    let mut reader = Reader::open(publisher.path()).unwrap();
    for n in 0..50u64 {
        let state = if n % 2 == 0 {
            BlockState::Allocated
        } else {
            BlockState::Free
        };
        if n % 3 < 2 {
            publisher.meet(&mut lanes[n as usize % 3].lane);
            lanes[n as usize % 3].operate(3, state);
        } else {
            assert!(publisher.block(3, &block(3, state), next(3)));
        }
        let snapshot = reader.refresh().unwrap();
        assert_eq!(snapshot.devices[0].segments[0].blocks[3].state, state, "{n}");
    }
    // The block after it is split, so its slot must name another next block.
    publisher.event(&mark(0));
    publisher.segment_begin(0);
    let half = |at, state| Block {
        size: SIZE / 2,
        addr: block(4, state).addr + at,
        ..block(4, state)
    };
    assert!(publisher.block(4, &half(SIZE / 2, BlockState::Free), next(4)));
    assert!(publisher.block(BLOCKS, &half(0, BlockState::Free), Some(4)));
    assert!(
        lanes[0]
            .lane
            .block(3, BlockState::Allocated, &block(3, BlockState::Allocated), Some(BLOCKS))
    );
    assert!(
        !lanes[0]
            .lane
            .block(1 << 20, BlockState::Allocated, &block(3, BlockState::Allocated), None)
    );
    publisher.segment_close(0);
    let snapshot = reader.refresh().unwrap();
    let map = &snapshot.devices[0].segments[0];
    assert!(map.complete && map.blocks.len() == BLOCKS as usize + 1);
    assert_eq!(map.blocks[3].state, BlockState::Allocated);
}
