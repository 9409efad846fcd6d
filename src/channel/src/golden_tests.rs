//! The format, word for word. A change that breaks one of these tests breaks every existing reader and black box, and
//! needs a new format version.

use std::sync::atomic::AtomicU64;

use crate::codec::{self, EventMeta};
use crate::layout::{Capacity, Layout};
use crate::record::{Block, BlockState, Device, DeviceKind, Event, EventKind, PoolId, Segment, SegmentKind, StringId};
use crate::word::Word;

/// Returns words 1.. of a record that `put` stores.
fn words_of(put: impl FnOnce(&[AtomicU64; 8])) -> [u64; 7] {
    let record = [const { AtomicU64::new(0) }; 8];
    put(&record);
    std::array::from_fn(|n| record[n + 1].get())
}

fn block_words(block: &Block, next: u32) -> [u64; 7] {
    words_of(|record| codec::put_block(record, (block.time, block.state, next), block))
}

fn event_words(event: &Event, follows: bool, order: u32) -> [u64; 7] {
    let what = EventMeta {
        time: event.time,
        kind: event.kind,
        split: event.split.into(),
        follows,
        order,
    };
    words_of(|record| codec::put_event(record, what, event))
}

#[test]
fn header_and_table_of_contents_are_fixed() {
    let layout = Layout::new(Capacity {
        devices: 1,
        segments: 2,
        blocks: 2048,
        events: 20,
        strings: 3,
        lanes: 2,
        lane_events: 10,
    });
    let header = layout.header();
    let len = layout.len as u64 * 8;
    assert_eq!(
        header[..8],
        [u64::from_le_bytes(*b"gpumemch"), 2, 2, len, 512, 11, 64, 0],
        "frozen for ever"
    );
    let toc: Vec<[u64; 5]> = header[64..]
        .chunks(4)
        .map(|e| [e[0], e[1], e[2] & 0xffff_ffff, e[2] >> 32, e[3]])
        .collect();
    let expected = [
        // kind, offset, stride, count, version
        [1, 896, 8, 9, 1],
        [2, 1024, 192, 1, 1],
        [3, 1216, 1280, 1, 1],
        [4, 2496, 128, 2, 1],
        [6, 2752, 8, 2, 1],
        [8, 2816, 128, 3, 1],
        [10, 3200, 512, 2, 1],
        [11, 4224, 128, 2, 1],
        [12, 4480, 64, 32, 1],
        [7, 6528, 64, 32, 1],
        [5, 8576, 64, 2048, 1],
    ];
    assert_eq!(toc, expected);
    assert_eq!(len, 8576 + 64 * 2048);
}

#[test]
fn words_of_records_are_fixed() {
    let block = Block {
        addr: 0x7f00_0000_0000,
        size: 4096,
        requested: 4000,
        stream: 9,
        state: BlockState::PendingFree,
        device: 2,
        pool: PoolId::LARGE,
        segment: 5,
        tag: StringId(6),
        time: 77,
    };
    assert_eq!(
        block_words(&block, 8),
        [
            0x7f00_0000_0000,
            4096,
            4000,
            9,
            0x0000_0005_0001_0203,
            0x0000_0008_0000_0006,
            77
        ]
    );
    assert_eq!(codec::decode_block(&block_words(&block, 8)), Some((block, 8)));
    assert_eq!(codec::decode_block(&[0; 7]), None, "zeroed memory is an empty slot");

    let segment = Segment {
        addr: 1 << 40,
        size: 64 << 20,
        mapped: 32 << 20,
        device: 1,
        pool: PoolId::SMALL,
        kind: SegmentKind::Virtual,
        stream: 3,
        chunk: 2 << 20,
        time: 99,
        tag: StringId(4),
        pool_name: StringId(8),
    };
    let words = [
        1 << 40,
        64 << 20,
        32 << 20,
        0x0000_000b_0000_0102,
        3,
        2 << 20,
        99,
        0x0000_0008_0000_0004,
    ];
    assert_eq!(codec::encode_segment(&segment, 11), words);
    assert_eq!(codec::decode_segment(&words), Some((segment, 11)));
    assert_eq!(codec::decode_segment(&[0; 8]), None);

    let event = Event {
        index: 12,
        lane: None,
        time: 1,
        kind: EventKind::OutOfMemory,
        device: 1,
        pool: PoolId::LARGE,
        addr: 2,
        size: 3,
        requested: 4,
        stream: 5,
        tag: StringId(6),
        segment: 7,
        split: None,
    };
    let words = [1, 0x0000_0007_0001_010a, 2, 3, 4, 5, 0x0000_0009_0000_0006];
    assert_eq!(event_words(&event, false, 9), words);
    assert_eq!(codec::decode_event(event.lane, 12, &words), event);
    assert!(!codec::follows(&words));
    assert_eq!(codec::order(&words), 9);
    let event = Event {
        split: Some(PoolId::LARGE),
        lane: Some(3),
        ..event
    };
    let words = [1, 0x0000_0007_0701_010a, 2, 3, 4, 5, 0xffff_ffff_0000_0006];
    assert_eq!(event_words(&event, true, u32::MAX), words);
    assert_eq!(codec::decode_event(event.lane, 12, &words), event);
    assert!(codec::follows(&words));

    let device = Device {
        uuid: *b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0",
        kind: DeviceKind::Simulated,
        ordinal: 3,
        total: 4,
        granularity: 5,
        budget: 6,
        name: "H100".into(),
    };
    let words = codec::encode_device(&device);
    assert_eq!(
        words[..8],
        [
            1,
            2,
            0x0000_0003_0000_0002,
            4,
            5,
            6,
            4,
            u64::from_le_bytes(*b"H100\0\0\0\0")
        ]
    );
    assert_eq!(codec::decode_device(&words), Some(device));
}
