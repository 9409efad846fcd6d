//! Four lanes and the publisher publish concurrently while a reader reads. The figures of each lane match its events,
//! no block mixes two moments, and events before a meeting come before those after it.

mod kill;
mod program;
mod witness;

use std::sync::atomic::Ordering;

use gpumem_channel::Reader;
use program::{LANES, OPERATIONS, PAIRS, Program, RING, ROUNDS, UNIT, Watch, addr};
use witness::Witness;

use crate::common::{Random, channel_dir};

#[test]
fn concurrent_lanes_and_publisher_are_shown_correctly() {
    let dir = channel_dir();
    let (mut looks, mut exact) = (0, 0);
    for round in 0..ROUNDS {
        let program = Program::new(dir.path(), RING);
        let reader = Reader::open(program.heap.lock().unwrap().publisher.path()).unwrap();
        let mut witness = Witness::new(reader);
        std::thread::scope(|scope| {
            for number in 0..LANES {
                let program = &program;
                scope.spawn(move || program.work_on_lane(number, Random(round * 97 + number as u64 + 1)));
            }
            scope.spawn(|| program.work_on_heap(Random(round * 97 + 50)));
            let _watch = Watch(&program);
            while program.running.load(Ordering::Acquire) > 0 {
                witness.look();
                looks += 1;
                program.taken[0].store(witness.own, Ordering::Relaxed);
                for (taken, history) in program.taken[1..].iter().zip(&witness.history) {
                    taken.store(history.len() as u64 - 1, Ordering::Relaxed);
                }
            }
        });
        let last = witness.look();
        exact += witness.exact;
        assert_eq!(last.lagging_segments, 0);
        let map = &last.devices[0].segments[0];
        let mut heap = program.heap.lock().unwrap();
        assert_eq!(
            map.blocks.len(),
            2 * PAIRS + heap.split.iter().filter(|split| **split).count()
        );
        for (number, front) in program.fronts.iter().enumerate() {
            let mut front = front.lock().unwrap();
            assert_eq!(last.lanes[number].event_count, OPERATIONS);
            assert_eq!(last.lanes[number].figures, front.figures);
            for held in &front.blocks {
                let shown = map.blocks.iter().find(|block| block.addr == addr(held.pair)).unwrap();
                assert_eq!((shown.size, shown.requested), (UNIT, held.requested));
            }
            heap.meet(number, &mut front);
        }
    }
    assert!(
        looks > 20 && exact > 4,
        "{looks} reads, {exact} of them exact: too few for a meaningful test"
    );
    println!("{looks} reads, {exact} of them exact");
}
