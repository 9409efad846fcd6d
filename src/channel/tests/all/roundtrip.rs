//! One publisher and one reader on real files: the reader shows what was published.

use gpumem_channel::{
    Block, BlockState, Device, DeviceKind, DeviceStats, Event, EventKind, Life, PoolId, Publisher, Reader, Segment,
    Touched,
};

use crate::common::{Heap, channel_dir, operate, options, publisher};

/// A lane whose stream has ended continues with another one: its event numbers and counts continue.
#[test]
fn lane_continues_with_another_stream() {
    let dir = channel_dir();
    let mut publisher = Publisher::create(&options(dir.path())).unwrap();
    let mut lane = publisher.lane(0, 7).unwrap();
    let mut reader = Reader::open(publisher.path()).unwrap();
    operate(&mut lane, 512);
    assert_eq!(reader.refresh().unwrap().lanes[0].stream, 7);
    lane.continue_with(8);
    operate(&mut lane, 512);
    let view = reader.refresh().unwrap().lanes[0];
    assert_eq!((view.stream, view.open), (8, true));
    let events = reader.events().unwrap().events;
    assert_eq!(events.iter().map(|event| event.index).collect::<Vec<_>>(), [0, 1]);
}

/// A program may keep them in its own types that derive `Debug`, and send them to other threads.
#[test]
fn publisher_and_reader_are_debug_and_send() {
    fn handle<T: std::fmt::Debug + Send>(end: &T) -> String {
        format!("{end:?}")
    }
    let dir = channel_dir();
    let publisher = Publisher::create(&options(dir.path())).unwrap();
    let reader = Reader::open(publisher.path()).unwrap();
    assert!(handle(&publisher).contains(publisher.path().to_str().unwrap()));
    assert!(handle(&reader).contains(&std::process::id().to_string()));
}

#[test]
fn published_map_is_read_back_exactly() {
    let dir = channel_dir();
    let mut publisher = Publisher::create(&options(dir.path())).unwrap();
    let device = Device {
        uuid: *b"0123456789abcdef",
        kind: DeviceKind::Simulated,
        ordinal: 3,
        total: 80 << 30,
        granularity: 2 << 20,
        budget: 1 << 30,
        name: "Simulated".into(),
    };
    publisher.set_device(0, &device);
    let heap = Heap::after(7, 500, &mut publisher);
    let file = std::fs::metadata(publisher.path()).unwrap();
    assert_eq!(file.len(), options(dir.path()).file_len());
    let mut reader = Reader::open(publisher.path()).unwrap();
    let snapshot = reader.refresh().unwrap();
    assert_eq!(snapshot.life, Life::Alive);
    let identity = &snapshot.identity;
    let us = (std::process::id(), rustix::process::geteuid().as_raw());
    assert_eq!((identity.pid, identity.uid), us);
    assert!(identity.program.starts_with("all-"), "{}", identity.program);
    assert_eq!(snapshot.devices.len(), 1);
    assert_eq!(snapshot.devices[0].device, device);
    assert_eq!(snapshot.devices[0].stats, Some(heap.stats));
    assert_eq!(
        (
            snapshot.lagging_segments,
            snapshot.malformed_segments,
            snapshot.untracked_blocks
        ),
        (0, 0, 0)
    );
    heap.assert_shown_by(&snapshot, &snapshot.devices[0]);
}

#[test]
fn only_changed_segments_get_new_maps() {
    let dir = channel_dir();
    let mut publisher = publisher(dir.path());
    let mut heap = Heap::after(1, 300, &mut publisher);
    let mut reader = Reader::open(publisher.path()).unwrap();
    let first = reader.refresh().unwrap();
    let second = reader.refresh().unwrap();
    let same = |a: &gpumem_channel::Snapshot, b: &gpumem_channel::Snapshot| {
        let pairs = a.devices[0].segments.iter().zip(&b.devices[0].segments);
        pairs.filter(|(a, b)| std::sync::Arc::ptr_eq(a, b)).count()
    };
    assert_eq!(same(&first, &second), first.devices[0].segments.len());
    heap.toggle_one(&mut publisher);
    let third = reader.refresh().unwrap();
    assert_eq!(
        same(&first, &third),
        first.devices[0].segments.len() - 1,
        "one segment changed, one map is new"
    );
}

#[test]
fn events_come_in_order_and_lost_ones_are_counted() {
    let dir = channel_dir();
    let mut publisher = Publisher::create(&options(dir.path())).unwrap();
    let tag = publisher.intern("forward");
    let mut reader = Reader::open(publisher.path()).unwrap();
    assert!(reader.events().unwrap().events.is_empty());
    let mark = |n| Event {
        kind: EventKind::Mark,
        tag,
        size: n,
        pool: PoolId::LARGE,
        ..Event::default()
    };
    for n in 0..100 {
        publisher.event(&mark(n));
    }
    let new = reader.events().unwrap();
    assert_eq!(new.lost, 0);
    let expected: Vec<_> = (0..100).map(|n| (n, n, EventKind::Mark)).collect();
    assert_eq!(
        new.events.iter().map(|e| (e.index, e.size, e.kind)).collect::<Vec<_>>(),
        expected
    );
    assert!(new.events.windows(2).all(|w| w[0].time <= w[1].time && w[0].time > 0));
    assert_eq!(reader.refresh().unwrap().string(tag), "forward");
    // The ring holds 256 events.
    for n in 100..1000 {
        publisher.event(&mark(n));
    }
    let new = reader.events().unwrap();
    assert_eq!((new.lost, new.events.len()), (1000 - 100 - 256, 256));
    assert_eq!(new.events.first().map(|e| e.index), Some(744));
    assert_eq!(reader.refresh().unwrap().events_lost, 644);
}

#[test]
fn blocks_beyond_a_full_table_are_counted() {
    let dir = channel_dir();
    let mut publisher = publisher(dir.path());
    let block = gpumem_channel::Block {
        addr: 4096,
        size: 512,
        state: BlockState::Allocated,
        ..Default::default()
    };
    publisher.segment_begin(0);
    assert!(publisher.block(0, &block, Some(99_999)));
    assert!(!publisher.block(99_999, &block, None), "no such slot");
    publisher.untracked(1, 512);
    let segment = gpumem_channel::Segment {
        addr: 4096,
        size: 1024,
        mapped: 1024,
        ..Default::default()
    };
    publisher.segment_end(0, Some((&segment, Some(0))));
    let snapshot = Reader::open(publisher.path()).unwrap().refresh().unwrap();
    assert_eq!((snapshot.untracked_blocks, snapshot.untracked_bytes), (1, 512));
    let map = &snapshot.devices[0].segments[0];
    assert!(!map.complete, "a part of it is unknown");
    assert_eq!(map.blocks.len(), 1, "the rest is shown");
}

#[test]
fn blocks_of_segments_without_a_slot_are_counted() {
    let dir = channel_dir();
    let mut publisher = publisher(dir.path());
    let mut reader = Reader::open(publisher.path()).unwrap();
    let mut untracked = || {
        let shown = reader.refresh().unwrap();
        assert_eq!((shown.malformed_segments, shown.lagging_segments), (0, 0));
        (shown.untracked_blocks, shown.untracked_bytes)
    };
    let block = |segment, addr, size| gpumem_channel::Block {
        addr,
        size,
        state: BlockState::Allocated,
        segment,
        ..Default::default()
    };
    // The table has 64 slots.
    publisher.segment_begin(64);
    assert!(publisher.block(5, &block(64, 4096, 512), Some(6)));
    assert!(publisher.block(6, &block(64, 4608, 1024), None));
    let segment = |addr, size| gpumem_channel::Segment {
        addr,
        size,
        mapped: size,
        ..Default::default()
    };
    publisher.segment_end(64, Some((&segment(4096, 1536), Some(5))));
    assert_eq!(untracked(), (2, 1536));
    assert!(publisher.clear_block(6));
    assert!(publisher.block(5, &block(64, 4096, 1536), None));
    publisher.untracked(1, 512);
    assert_eq!(untracked(), (2, 2048), "in addition to blocks without a slot");
    publisher.untracked(0, 0);
    // Its slot now holds a block of another segment.
    publisher.segment_begin(63);
    assert!(publisher.block(5, &block(63, 8192, 512), None));
    publisher.segment_end(63, Some((&segment(8192, 512), Some(5))));
    assert_eq!(untracked(), (0, 0));
}

#[test]
fn figures_follow_every_publication() {
    let dir = channel_dir();
    let mut publisher = publisher(dir.path());
    let mut reader = Reader::open(publisher.path()).unwrap();
    assert_eq!(
        reader.refresh().unwrap().devices[0].stats,
        None,
        "nothing published yet is not zero"
    );
    let mut stats = DeviceStats::default();
    stats.small.reserved_bytes.add(2 << 20);
    publisher.stats(0, &stats, Touched::COLD);
    for n in 1..50 {
        // Alternating pools: each cell misses what went to the other.
        let (pool, touched) = if n % 3 == 0 {
            (&mut stats.small, Touched::SMALL)
        } else {
            (&mut stats.large, Touched::LARGE)
        };
        pool.allocation.add(1);
        pool.active.add(1);
        pool.requested_bytes.add(n);
        publisher.stats(0, &stats, touched.and(Touched::COLD));
        assert_eq!(reader.refresh().unwrap().devices[0].stats, Some(stats));
    }
    assert_eq!(stats.all().allocation.current, 49);
}

/// Publishes a free block of 2 MiB in a segment of 2 MiB, with figures of which `reserved` bytes are reserved.
fn one_free_block(dir: &std::path::Path, reserved: u64) -> Publisher {
    let mut publisher = Publisher::create(&options(dir)).unwrap();
    publisher.set_device(0, &Device::default());
    let (addr, size) = (1 << 32, 2 << 20);
    let block = Block {
        addr,
        size,
        state: BlockState::Free,
        ..Block::default()
    };
    let segment = Segment {
        addr,
        size,
        mapped: size,
        ..Segment::default()
    };
    publisher.segment_begin(0);
    publisher.block(0, &block, None);
    publisher.segment_end(0, Some((&segment, Some(0))));
    let mut stats = DeviceStats::default();
    stats.large.reserved_bytes.add(reserved);
    stats.all_peaks = stats.large.figures().map(|stat| stat.peak);
    publisher.stats(0, &stats, Touched::ALL);
    publisher
}

#[test]
fn more_free_than_cached_bytes_is_a_contradiction() {
    let dir = channel_dir();
    let said = |reserved, kind, moved: u64| {
        let mut publisher = one_free_block(dir.path(), reserved);
        if moved > 0 {
            // The event is published before the block and the figures.
            publisher.event(&Event {
                kind,
                size: moved,
                ..Event::default()
            });
        }
        let mut reader = Reader::open(publisher.path()).unwrap();
        reader.refresh().unwrap().devices[0].contradiction
    };
    let text = Some("its free blocks are more than it has cached");
    assert_eq!(said(2 << 20, EventKind::Mark, 0), None);
    assert_eq!(said((2 << 20) - 1, EventKind::Mark, 0), text);
    for kind in [
        EventKind::Alloc,
        EventKind::Free,
        EventKind::FreeCompleted,
        EventKind::SegmentAlloc,
        EventKind::SegmentMap,
    ] {
        assert_eq!(
            said(1 << 20, kind, 1 << 20),
            None,
            "it may be in the middle of {kind:?}"
        );
        assert_eq!(said((1 << 20) - 1, kind, 1 << 20), text);
    }
    for kind in [EventKind::SegmentFree, EventKind::Mark, EventKind::OutOfMemory] {
        assert_eq!(said(1 << 20, kind, 1 << 20), text, "{kind:?} frees no memory");
    }
}

#[test]
fn reader_limits_the_number_of_devices() {
    let dir = channel_dir();
    let mut publisher = one_free_block(dir.path(), 2 << 20);
    publisher.set_device(1, &Device::default());
    let mut stats = DeviceStats::default();
    publisher.stats(1, &stats, Touched::ALL);
    let mut reader = Reader::open(publisher.path()).unwrap();
    reader.limit_devices(1);
    assert_eq!(reader.refresh().unwrap().devices.len(), 1);
    assert_eq!(reader.device_count().unwrap(), 2);
    assert!(!reader.ran_out_of_memory().unwrap());
    stats.num_ooms = 1;
    publisher.stats(1, &stats, Touched::ALL);
    assert!(reader.ran_out_of_memory().unwrap(), "of all devices");
}
