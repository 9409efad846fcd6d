#![allow(clippy::unwrap_used)]
use super::{Entry, Replica};
use crate::source::Source;
use crate::{Block, BlockState, Device, Options, Publisher, Reader, Segment, Snapshot};

const SEGMENTS: u32 = 12;
/// Pairs of blocks per segment; a pair is two blocks, or one that is as large as both.
const PAIRS: u32 = 200;
const SIZE: u64 = 512;

struct Heap {
    publisher: Publisher,
    /// By segment and pair: joined, and whether each of the two is free.
    pairs: Vec<(bool, [bool; 2])>,
    seed: u64,
}

impl Heap {
    fn new(dir: &std::path::Path) -> Heap {
        let options = Options {
            dir: Some(dir.join("channels")),
            blocks: 2 * SEGMENTS * PAIRS,
            segments: SEGMENTS,
            events: 16,
            ..Options::default()
        };
        let mut publisher = Publisher::create(&options).unwrap();
        publisher.set_device(0, &Device::default());
        let mut heap = Heap {
            publisher,
            pairs: vec![(false, [true; 2]); (SEGMENTS * PAIRS) as usize],
            seed: 5,
        };
        for segment in 0..SEGMENTS {
            heap.publisher.segment_begin(segment);
            for pair in segment * PAIRS..(segment + 1) * PAIRS {
                heap.publish(pair);
            }
            heap.close(segment);
        }
        heap
    }

    fn random(&mut self, below: u32) -> u32 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed % u64::from(below)) as u32
    }

    /// Returns a slot far from its neighbours, as in a heap that has been in use for a while.
    fn slot(n: u32) -> u32 {
        n * 7 % (2 * SEGMENTS * PAIRS)
    }

    fn blocks_of(&self, pair: u32) -> Vec<Block> {
        let (joined, free) = self.pairs[pair as usize];
        let count = if joined { 1 } else { 2 };
        (0..count)
            .map(|half| Block {
                addr: (1 << 30) + (u64::from(pair) * 2 + half) * SIZE,
                size: if joined { 2 * SIZE } else { SIZE },
                state: if free[half as usize] {
                    BlockState::Free
                } else {
                    BlockState::Allocated
                },
                segment: pair / PAIRS,
                ..Block::default()
            })
            .collect()
    }

    fn publish(&mut self, pair: u32) {
        let next_pair = (!(pair + 1).is_multiple_of(PAIRS)).then(|| Self::slot(2 * (pair + 1)));
        let blocks = self.blocks_of(pair);
        for (half, block) in blocks.iter().enumerate() {
            let slot = 2 * pair + half as u32;
            let next = if half + 1 < blocks.len() {
                Some(Self::slot(slot + 1))
            } else {
                next_pair
            };
            assert!(self.publisher.block(Self::slot(slot), block, next));
        }
    }

    fn close(&mut self, segment: u32) {
        let size = u64::from(PAIRS) * 2 * SIZE;
        let record = Segment {
            addr: (1 << 30) + u64::from(segment) * size,
            size,
            mapped: size,
            ..Segment::default()
        };
        self.publisher
            .segment_end(segment, Some((&record, Some(Self::slot(2 * segment * PAIRS)))));
    }

    fn step(&mut self) {
        let pair = self.random(SEGMENTS * PAIRS);
        let half = self.random(2) as usize;
        let free = &mut self.pairs[pair as usize].1[half];
        *free = !*free;
        if self.random(10) > 0 {
            return self.publish(pair);
        }
        let joined = &mut self.pairs[pair as usize].0;
        *joined = !*joined;
        let joined = *joined;
        self.publisher.segment_begin(pair / PAIRS);
        self.publish(pair);
        if joined {
            self.publisher.clear_block(Self::slot(2 * pair + 1));
        }
        self.close(pair / PAIRS);
    }

    fn blocks(&self) -> Vec<Block> {
        (0..SEGMENTS * PAIRS).flat_map(|pair| self.blocks_of(pair)).collect()
    }
}

fn shown(snapshot: &Snapshot) -> Vec<Block> {
    let blocks = snapshot.devices[0].blocks();
    blocks.map(|block| Block { time: 0, ..*block }).collect()
}

/// Opens a channel with `pread`, as that of another user is read.
fn by_pread(path: &std::path::Path) -> Reader {
    let mut reader = Reader::open(path).unwrap();
    reader.source = Source::by_pread(reader.file.clone());
    reader
}

#[test]
fn both_ways_of_reading_follow_every_change() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut heap = Heap::new(dir.path());
    let mut readers = [
        Reader::open(heap.publisher.path()).unwrap(),
        by_pread(heap.publisher.path()),
    ];
    let mut kept: Vec<(Snapshot, Vec<Block>)> = Vec::new();
    for pass in 0..300u32 {
        let steps = [0, 1, 30, 2_000][(pass % 4) as usize];
        (0..steps).for_each(|_| heap.step());
        for reader in &mut readers {
            let snapshot = reader.refresh().unwrap();
            assert_eq!((snapshot.lagging_segments, snapshot.malformed_segments), (0, 0));
            let device = &snapshot.devices[0];
            assert!(device.segments.iter().all(|map| map.complete));
            assert_eq!(shown(&snapshot), heap.blocks());
            let blocks: Vec<Block> = device.blocks().copied().collect();
            assert_eq!(device.free(), crate::FreeSums::of(&blocks));
            // Every other snapshot is kept for a while: the reader must not change it.
            if pass % 2 == 0 {
                kept.push((snapshot, heap.blocks()));
            }
        }
        if kept.len() > 6 {
            let (snapshot, blocks) = kept.remove(0);
            assert_eq!(shown(&snapshot), blocks, "a snapshot changed after it was taken");
        }
    }
}

/// A hostile or interrupted channel may claim anything about a segment. The blocks that are shown can still be summed
/// up and drawn.
#[test]
fn overlapping_and_protruding_blocks_are_not_shown() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = Options {
        dir: Some(dir.path().join("channels")),
        ..Options::default()
    };
    let mut publisher = Publisher::create(&options).unwrap();
    publisher.set_device(0, &Device::default());
    publisher.segment_begin(0);
    // Start and length of blocks of a segment of length four. The last block is removed again.
    let blocks = [(0, 2), (1, 1), (2, 1), (3, 2), (3, 1)];
    for (slot, (at, sizes)) in (0..).zip(blocks) {
        let block = Block {
            addr: (1 << 30) + at * SIZE,
            size: sizes * SIZE,
            ..Block::default()
        };
        assert!(publisher.block(slot, &block, Some(slot + 1).filter(|next| *next < 4)));
    }
    publisher.clear_block(4);
    let segment = Segment {
        addr: 1 << 30,
        size: 4 * SIZE,
        mapped: 4 * SIZE,
        ..Segment::default()
    };
    publisher.segment_end(0, Some((&segment, Some(0))));
    let snapshot = Reader::open(publisher.path()).unwrap().refresh().unwrap();
    let blocks = shown(&snapshot);
    let shown: Vec<u64> = blocks.iter().map(|block| (block.addr - (1 << 30)) / SIZE).collect();
    assert_eq!(shown, [0, 2]);
    assert!(!snapshot.devices[0].segments[0].complete);
}

/// A hostile channel may fill the segment table. Quadratic work would take minutes.
#[test]
fn counting_lagging_segments_is_not_quadratic() {
    const MANY: u32 = 1 << 18;
    let mut replica = Replica::default();
    replica.segments.resize_with(MANY as usize, Entry::default);
    (0..MANY).step_by(2).for_each(|slot| replica.mark(slot));
    replica.torn = (0..MANY).collect();
    assert_eq!(replica.lagging(), MANY, "each once");
    assert!((0..MANY).all(|slot| replica.is_behind(slot) == slot.is_multiple_of(2)));
}
