//! Kills a writer between two stores with a lane beside the publisher: during the lane's operations, and during a
//! change of structure next to its block.

use super::*;
use crate::lane::LaneWriter;
use crate::stats::{LaneFigures, LaneStat};
use crate::{Operation, Split};

struct Pair {
    writer: Writer<Memory>,
    lane: LaneWriter<Memory>,
}

/// Makes a segment of two blocks: one lent to the lane, and a free one.
fn pair() -> Pair {
    let mut writer = fresh();
    writer.segment_begin(0);
    show(&mut writer, 0, block(0, 512, BlockState::Free), Some(1));
    show(&mut writer, 1, block(512, 3584, BlockState::Free), None);
    writer.segment_end(0, Some((&SEGMENT, Some(0))));
    writer.stats(0, &figures(0), Touched::ALL);
    let memory = writer.memory().clone();
    let lane = writer.lane(memory, 0, 7).unwrap();
    Pair { writer, lane }
}

fn operation(pair: &mut Pair, kind: EventKind, state: BlockState, next: u32) {
    let operation = Operation {
        kind,
        slot: 0,
        state,
        block: &Block {
            requested: 504,
            ..block(0, 512, state)
        },
        next: Some(next),
        split: Split::NO,
    };
    let published = pair.lane.operation::<false>(0, &operation);
    assert!(published.stored);
    if published.figures_due {
        let mut figures = LaneFigures::default();
        let held = u64::from(state == BlockState::Allocated);
        let stat = |n| LaneStat {
            current: n,
            allocated: n,
        };
        let small = &mut figures.small;
        small.allocation = stat(held);
        small.allocated_bytes = stat(held * 512);
        small.requested_bytes = stat(held * 504);
        pair.lane.figures(&figures);
    }
}

const OPERATIONS: [fn(&mut Pair); 3] = [
    |pair| operation(pair, EventKind::Alloc, BlockState::Allocated, 1),
    |pair| {
        // The block after the lane's is split.
        pair.writer.event(&small(EventKind::Alloc));
        pair.writer.meet(&mut pair.lane);
        pair.writer.segment_begin(0);
        show(&mut pair.writer, 2, block(512, 512, BlockState::Free), Some(1));
        show(&mut pair.writer, 1, block(1024, 3072, BlockState::Free), None);
        let state = BlockState::Allocated;
        pair.lane.block(0, 0, state, &block(0, 512, state), Some(2));
        pair.writer.segment_close(0);
        pair.writer.stats(0, &figures(0), Touched::ALL);
    },
    |pair| operation(pair, EventKind::Free, BlockState::Free, 2),
];

/// Returns the blocks after the first `n` operations, and how many of them are held.
fn expected(n: usize) -> (Vec<Block>, u64) {
    use BlockState::{Allocated, Free};
    let held = (1..3).contains(&n);
    let mut blocks = vec![block(0, 512, if held { Allocated } else { Free })];
    if n < 2 {
        blocks.push(block(512, 3584, Free));
    } else {
        blocks.extend([block(512, 512, Free), block(1024, 3072, Free)]);
    }
    (blocks, held.into())
}

fn assert_was(snapshot: &Snapshot, cut: usize, where_: &str) {
    let [before, after] = [cut, cut + 1].map(expected);
    let stats = snapshot.devices[0].stats.unwrap().small;
    let held = stats.allocation.current;
    assert!([before.1, after.1].contains(&held), "{where_}: {held} held");
    assert_eq!(stats.allocated_bytes.current, 512 * held, "{where_}");
    assert_eq!(stats.active_bytes.current, 512 * held, "{where_}");
    if let Some(shape) = shape(snapshot) {
        assert!([before.0, after.0].contains(&shape), "{where_}: {shape:?}");
    }
}

#[test]
fn kill_between_stores_of_a_lane_leaves_an_earlier_state() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("1-1-0.gpumem");
    for cut in 0..OPERATIONS.len() {
        for stores in 0.. {
            let where_ = format!("{cut}: {stores}");
            let mut pair = pair();
            OPERATIONS[..cut].iter().for_each(|operation| operation(&mut pair));
            let mut options = std::fs::File::options();
            let file = options.read(true).write(true).create(true).truncate(true);
            let file = file.open(&path).unwrap();
            write(&pair.writer, &file);
            crate::life::hold(&file).unwrap();
            let mut witness = Reader::open(&path).unwrap();
            assert_eq!(shape(&witness.refresh().unwrap()), Some(expected(cut).0));
            let seen = witness.events().unwrap().events.len();

            LEFT.set(stores);
            OPERATIONS[cut](&mut pair);
            let finished = LEFT.get() > 0;
            LEFT.set(u64::MAX);
            write(&pair.writer, &file);

            let stopped = witness.refresh().unwrap();
            assert_was(&stopped, cut, &where_);
            assert!(shape(&stopped).is_some(), "{where_}: the earlier state stays");
            assert_was(&Reader::open(&path).unwrap().refresh().unwrap(), cut, &where_);
            drop(file);

            let mut late = Reader::open(&path).unwrap();
            let ends = [&mut witness, &mut late].map(|reader| reader.refresh().unwrap());
            assert_eq!(ends[0].devices, ends[1].devices, "{where_}");
            for dead in &ends {
                assert_eq!((dead.life, dead.devices[0].segments.len()), (Life::Died, 1));
                assert_was(dead, cut, &where_);
            }
            if shape(&ends[0]).is_none() {
                let events = late.events().unwrap().events;
                assert_eq!(
                    events.len(),
                    seen + 1,
                    "{where_}: an operation was interrupted, and its event names it"
                );
                let by_lane = events.iter().filter(|event| event.lane.is_some()).count();
                assert_eq!(by_lane, [1, 1, 2][cut], "{where_}");
            }
            if finished {
                assert!(stores > 20, "the operation was interrupted in {stores} places only");
                break;
            }
        }
    }
}
