use super::free::join;
use super::*;
use crate::record::BlockState;

/// Whatever blocks are freed and allocated, in whatever order, the sums equal a full recount.
#[test]
fn sums_follow_every_replacement() {
    let mut seed = 7u64;
    let mut next = move |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % n
    };
    let states = [
        BlockState::Free,
        BlockState::Quick,
        BlockState::Quick,
        BlockState::Allocated,
    ];
    for round in 0..400 {
        // Some runs are longer than what a replacement examines.
        let most = if round % 8 == 0 { 300 } else { 8 };
        let taken = if round % 16 == 0 { 3 } else { 4 };
        let mut addr = 0;
        let mut blocks = Vec::new();
        for _ in 0..1 + next(most) {
            let block = Block {
                addr,
                size: 512 << next(4),
                state: states[next(taken) as usize],
                stream: u64::from(next(8) == 0),
                ..Block::default()
            };
            addr += block.size;
            blocks.push(block);
        }
        let mut map = SegmentMap::new(0, Segment::default(), blocks.into(), true);
        for _ in 0..next(20) {
            let at = next(map.blocks.len() as u64) as usize;
            let block = Block {
                state: states[next(4) as usize],
                stream: u64::from(next(8) == 0),
                ..map.blocks[at]
            };
            map.replace(at, &block);
        }
        map.settle();
        assert_eq!(map.free, FreeSums::of(&map.blocks));
        let (left, right) = map.blocks.split_at(map.blocks.len() / 2);
        let whole = |(left, right): (&Block, &Block)| join(left, right);
        if !left.last().zip(right.first()).is_some_and(whole) {
            assert_eq!(map.free, FreeSums::of(left).and(FreeSums::of(right)));
        }
    }
}
