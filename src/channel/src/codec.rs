//! Records as words. Word 0 of every record is its sequence word (seqlock.rs) and is not touched here.

use crate::facts::Facts;
use crate::format::flags::{FOLLOWS, SPLIT, SPLIT_IN_LARGE};
use crate::format::words;
use crate::operation::Split;
use crate::record::{Block, BlockState, Device, DeviceKind, Event, EventKind, PoolId, Segment, SegmentKind, StringId};
use crate::text;
use crate::word::{Word, byte, high, pack};

/// "No slot": the end of a segment's list of blocks, or a block that found no room in the table.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// Gives an enumeration its numbers in the format, both ways, keeping unknown ones.
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
// 0 is an empty slot, so that a zeroed file holds no blocks.
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

/// Which of a block's words tells its state; 0 there is an empty slot, whatever the other words are.
pub(crate) const BLOCK_KIND: usize = 4;

/// Stores words 1.. of a block record; `next` is the slot of the block after it in its segment.
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

/// Stores those of them that change when a block is handed out or given back.
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

/// The block of words 1.., and the slot of the next. `None` for an empty slot.
#[inline(always)]
pub(crate) fn to_block(w: &[u64; words::BLOCK - 1]) -> Option<(Block, u32)> {
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

/// Words 1.. of a segment record that are in use.
pub(crate) const SEGMENT_DATA: usize = 8;

/// Words 1.. of a segment record; `first` is the slot of its first block. A kind of 0 is an empty slot.
pub(crate) fn segment(s: &Segment, first: u32) -> [u64; SEGMENT_DATA] {
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

/// The segment of words 1.., and the slot of its first block. `None` for an empty slot.
pub(crate) fn to_segment(w: &[u64; SEGMENT_DATA]) -> Option<(Segment, u32)> {
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

/// The bit of the word of the place from which on an event has its flags.
const FLAGS: u32 = 24;

/// What an event says beside the facts.
#[derive(Clone, Copy)]
pub(crate) struct What {
    pub(crate) time: u64,
    pub(crate) kind: EventKind,
    pub(crate) split: Split,
    /// What it does to the figures follows from it.
    pub(crate) follows: bool,
    /// The number of its writer's last meeting with another.
    pub(crate) order: u32,
}

/// Stores words 1.. of an event record.
#[inline(always)]
pub(crate) fn put_event<W: Word>(record: &[W; words::EVENT], what: What, about: &impl Facts) {
    let flags = what.split.0 | if what.follows { FOLLOWS } else { 0 };
    record[1].put(what.time);
    record[2].put(about.place().0 | u64::from(what.kind.number()) | u64::from(flags) << FLAGS);
    record[3].put(about.addr());
    record[4].put(about.size());
    record[5].put(about.requested());
    record[6].put(about.stream());
    record[7].put(u64::from(about.tag().0) | u64::from(what.order) << 32);
}

/// Whether what an event does to the figures follows from it.
pub(crate) fn follows(w: &[u64; words::EVENT - 1]) -> bool {
    byte(w[1], 3) & FOLLOWS != 0
}

/// The number of the meeting that an event came after.
pub(crate) fn order(w: &[u64; words::EVENT - 1]) -> u32 {
    high(w[6])
}

/// The event of words 1.., out of the ring of `lane`.
#[inline(always)]
pub(crate) fn to_event(lane: Option<u8>, index: u64, w: &[u64; words::EVENT - 1]) -> Event {
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
/// Words 1.. of a device record that are in use.
pub(crate) const DEVICE_DATA: usize = 7 + NAME_WORDS;

/// Words 1.. of a device record. The name is cut at 64 bytes.
pub(crate) fn device(d: &Device) -> [u64; DEVICE_DATA] {
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

/// The device of words 1... `None` for an empty record.
pub(crate) fn to_device(w: &[u64; DEVICE_DATA]) -> Option<Device> {
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
