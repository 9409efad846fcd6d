//! Memory that was returned to the driver and reused by another segment, read while the publisher is in the middle of
//! publishing the change.

use gpumem_channel::{Block, BlockState, PoolId, Publisher, Reader, Segment, SegmentKind};

use crate::common::{channel_dir, publisher};

const MIB: u64 = 1 << 20;

fn block(slot: u32, addr: u64, size: u64) -> Block {
    Block {
        addr,
        size,
        requested: size,
        stream: 1,
        state: BlockState::Allocated,
        device: 0,
        pool: PoolId::LARGE,
        segment: slot,
        ..Block::default()
    }
}

/// Publishes a segment of one block, whose slot is that of its segment.
fn publish(publisher: &mut Publisher, slot: u32, addr: u64, size: u64) {
    publisher.segment_begin(slot);
    publisher.block(slot, &block(slot, addr, size), None);
    let segment = Segment {
        addr,
        size,
        mapped: size,
        device: 0,
        pool: PoolId::LARGE,
        kind: SegmentKind::Plain,
        ..Segment::default()
    };
    publisher.segment_end(slot, Some((&segment, Some(slot))));
}

/// Returns address and size of the segments shown, the number of malformed segments, and the number of lagging ones.
fn shown(reader: &mut Reader) -> (Vec<(u64, u64)>, u32, u32) {
    let snapshot = reader.refresh().unwrap();
    let segments = snapshot.devices[0].segments.iter();
    let segments = segments.map(|map| (map.segment.addr, map.segment.size)).collect();
    (segments, snapshot.malformed_segments, snapshot.lagging_segments)
}

/// The reader has seen segments 0 and 1 when the publisher begins to free both. A new segment then takes precedence,
/// wherever it begins.
#[test]
fn outdated_segment_yields_to_its_replacement() {
    for (addr, size, stays) in [
        // At the same address; before both and covering them; in the middle of the first; over the end of the first and
        // the second.
        (100, 10, vec![(200, 10)]),
        (90, 200, vec![]),
        (104, 2, vec![(200, 10)]),
        (105, 100, vec![]),
    ] {
        let dir = channel_dir();
        let mut publisher = publisher(dir.path());
        let mut reader = Reader::open(publisher.path()).unwrap();
        let mib = |(addr, size): (u64, u64)| (addr * MIB, size * MIB);
        for (slot, addr) in [(0, 100), (1, 200)] {
            publish(&mut publisher, slot, addr * MIB, 10 * MIB);
        }
        assert_eq!(shown(&mut reader), (vec![mib((100, 10)), mib((200, 10))], 0, 0));
        publisher.segment_begin(0);
        publisher.segment_begin(1);
        publish(&mut publisher, 2, addr * MIB, size * MIB);
        let mut expected: Vec<(u64, u64)> = stays.into_iter().chain([(addr, size)]).map(mib).collect();
        expected.sort_unstable();
        assert_eq!(shown(&mut reader), (expected, 0, 2), "{addr}");
        publisher.segment_end(0, None);
        publisher.segment_end(1, None);
        assert_eq!(shown(&mut reader), (vec![mib((addr, size))], 0, 0), "{addr}");
    }
}

/// If two current segments overlap, the second one is counted as malformed.
#[test]
fn current_segment_does_not_yield() {
    let dir = channel_dir();
    let mut publisher = publisher(dir.path());
    let mut reader = Reader::open(publisher.path()).unwrap();
    publish(&mut publisher, 0, 100 * MIB, 10 * MIB);
    publish(&mut publisher, 1, 105 * MIB, 10 * MIB);
    assert_eq!(shown(&mut reader), (vec![(100 * MIB, 10 * MIB)], 1, 0));
}
