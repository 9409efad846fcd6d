//! Encodes records as words and decodes them. Word 0 of every record is its sequence word (`seqlock.rs`) and is not
//! touched here.

use crate::facts::Facts;
use crate::format::flags::{FOLLOWS, SPLIT, SPLIT_IN_LARGE};
use crate::format::words;
use crate::operation::Split;
use crate::record::{Block, BlockState, Device, DeviceKind, Event, EventKind, PoolId, Segment, SegmentKind, StringId};
use crate::text;
use crate::word::{Word, byte, high, pack};

/// "No slot": the end of a segment's list of blocks, or a block for which the table had no slot.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// Maps an enumeration to its numbers in the format and back, keeping unknown numbers.
macro_rules! numbers {
    ($name:ident { $($variant:ident = $number:literal),* $(,)? }) => {
        impl $name {
            #[inline(always)]
            pub(crate) fn number(self) -> u8 {
                match self { $($name::$variant => $number,)* $name::Unknown(n) => n }
            }
            #[inline(always)]
            pub(crate) fn of(number: u8) -> $name {
                match number { $($number => $name::$variant,)* n => $name::Unknown(n) }
            }
        }
    };
}

numbers!(DeviceKind { Cuda = 1, Simulated = 2 });
numbers!(SegmentKind { Plain = 1, Virtual = 2, Stitched = 3 });
// 0 means an empty slot, so that a zeroed file holds no blocks.
numbers!(BlockState { Free = 1, Allocated = 2, PendingFree = 3, Unmapped = 4, Part = 5, Quick = 6 });
numbers!(EventKind {
    Alloc = 1,
    Free = 2,
    FreeCompleted = 3,
    SegmentAlloc = 4,
    SegmentFree = 5,
    SegmentMap = 6,
    SegmentUnmap = 7,
    CacheRelease = 8,
    Remap = 9,
    OutOfMemory = 10,
    Retry = 11,
    Mark = 12,
    Advice = 13,
});

/// The word of a block that has its state. If it is 0 the slot is empty, whatever the other words are.
pub(crate) const BLOCK_KIND: usize = 4;

/// Stores words 1.. of a block record; `next` is the slot of the next block in its segment.
#[inline(always)]
pub(crate) fn put_block<W: Word>(
    record: &[W; words::BLOCK],
    (time, state, next): (u64, BlockState, u32),
    block: &impl Facts,
) {
    record[1].put(block.addr());
    record[2].put(block.size());
    record[4].put(block.stream());
    put_holder(record, (time, state, next), block);
}

/// Stores the words of a block record that change when the block is allocated or freed.
#[inline(always)]
pub(crate) fn put_holder<W: Word>(
    record: &[W; words::BLOCK],
    (time, state, next): (u64, BlockState, u32),
    block: &impl Facts,
) {
    record[3].put(block.requested());
    record[1 + BLOCK_KIND].put(block.place().0 | u64::from(state.number()));
    record[6].put(u64::from(block.tag().0) | u64::from(next) << 32);
    record[7].put(time);
}

/// Decodes words 1.. of a block record: the block, and the slot of the next one. Returns `None` for an empty slot.
#[inline(always)]
pub(crate) fn decode_block(w: &[u64; words::BLOCK - 1]) -> Option<(Block, u32)> {
    let packed = w[BLOCK_KIND];
    if byte(packed, 0) == 0 {
        return None;
    }
    let block = Block {
        addr: w[0],
        size: w[1],
        requested: w[2],
        stream: w[3],
        state: BlockState::of(byte(packed, 0)),
        device: byte(packed, 1),
        pool: PoolId(byte(packed, 2)),
        segment: high(packed),
        tag: StringId(w[5] as u32),
        time: w[6],
    };
    Some((block, high(w[5])))
}

/// Number of words in use from word 1 of a segment record.
pub(crate) const SEGMENT_DATA: usize = 8;

/// Encodes words 1.. of a segment record; `first` is the slot of its first block. A kind of 0 means an empty slot.
pub(crate) fn encode_segment(s: &Segment, first: u32) -> [u64; SEGMENT_DATA] {
    let packed = pack(s.kind.number(), s.device, s.pool.0, first);
    [
        s.addr,
        s.size,
        s.mapped,
        packed,
        s.stream,
        s.chunk,
        s.time,
        u64::from(s.tag.0) | u64::from(s.pool_name.0) << 32,
    ]
}

/// Decodes words 1.. of a segment record: the segment, and the slot of its first block. Returns `None` for an empty
/// slot.
pub(crate) fn decode_segment(w: &[u64; SEGMENT_DATA]) -> Option<(Segment, u32)> {
    let packed = w[3];
    if byte(packed, 0) == 0 {
        return None;
    }
    let segment = Segment {
        addr: w[0],
        size: w[1],
        mapped: w[2],
        device: byte(packed, 1),
        pool: PoolId(byte(packed, 2)),
        kind: SegmentKind::of(byte(packed, 0)),
        stream: w[4],
        chunk: w[5],
        time: w[6],
        tag: StringId(w[7] as u32),
        pool_name: StringId(high(w[7])),
    };
    Some((segment, high(packed)))
}

/// First bit of an event's flags in the word of its [`Place`](crate::Place).
const FLAGS: u32 = 24;

/// The fields of an event that are not [`Facts`].
#[derive(Clone, Copy)]
pub(crate) struct EventMeta {
    pub(crate) time: u64,
    pub(crate) kind: EventKind,
    pub(crate) split: Split,
    /// Whether its effect on the figures follows from the event.
    pub(crate) follows: bool,
    /// The number of its writer's last [meeting](crate::Publisher::meet).
    pub(crate) order: u32,
}

/// Stores words 1.. of an event record.
#[inline(always)]
pub(crate) fn put_event<W: Word>(record: &[W; words::EVENT], what: EventMeta, about: &impl Facts) {
    let flags = what.split.0 | if what.follows { FOLLOWS } else { 0 };
    record[1].put(what.time);
    record[2].put(about.place().0 | u64::from(what.kind.number()) | u64::from(flags) << FLAGS);
    record[3].put(about.addr());
    record[4].put(about.size());
    record[5].put(about.requested());
    record[6].put(about.stream());
    record[7].put(u64::from(about.tag().0) | u64::from(what.order) << 32);
}

/// Whether an event's effect on the figures follows from it.
pub(crate) fn follows(w: &[u64; words::EVENT - 1]) -> bool {
    byte(w[1], 3) & FOLLOWS != 0
}

/// Returns the number of the last meeting before an event.
pub(crate) fn order(w: &[u64; words::EVENT - 1]) -> u32 {
    high(w[6])
}

/// Decodes words 1.. of an event from the ring of `lane`.
#[inline(always)]
pub(crate) fn decode_event(lane: Option<u8>, index: u64, w: &[u64; words::EVENT - 1]) -> Event {
    Event {
        index,
        lane,
        time: w[0],
        kind: EventKind::of(byte(w[1], 0)),
        device: byte(w[1], 1),
        pool: PoolId(byte(w[1], 2)),
        addr: w[2],
        size: w[3],
        requested: w[4],
        stream: w[5],
        tag: StringId(w[6] as u32),
        segment: high(w[1]),
        split: (byte(w[1], 3) & SPLIT != 0).then_some(match byte(w[1], 3) & SPLIT_IN_LARGE {
            0 => PoolId::SMALL,
            _ => PoolId::LARGE,
        }),
    }
}

const NAME_WORDS: usize = 8;
/// Number of words in use from word 1 of a device record.
pub(crate) const DEVICE_DATA: usize = 7 + NAME_WORDS;

/// Encodes words 1.. of a device record. The name is truncated to 64 bytes.
pub(crate) fn encode_device(d: &Device) -> [u64; DEVICE_DATA] {
    let mut w = [0; DEVICE_DATA];
    let (low, upper) = d.uuid.split_at(8);
    w[0] = text::word(low);
    w[1] = text::word(upper);
    w[2] = pack(d.kind.number(), 0, 0, d.ordinal);
    w[3] = d.total;
    w[4] = d.granularity;
    w[5] = d.budget;
    w[6] = text::pack(&d.name, &mut w[7..]) as u64;
    w
}

/// Decodes words 1.. of a device record. Returns `None` for an empty record.
pub(crate) fn decode_device(w: &[u64; DEVICE_DATA]) -> Option<Device> {
    if byte(w[2], 0) == 0 {
        return None;
    }
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&w[0].to_le_bytes());
    uuid[8..].copy_from_slice(&w[1].to_le_bytes());
    Some(Device {
        uuid,
        kind: DeviceKind::of(byte(w[2], 0)),
        ordinal: high(w[2]),
        total: w[3],
        granularity: w[4],
        budget: w[5],
        name: text::unpack(w[6], &w[7..]),
    })
}
