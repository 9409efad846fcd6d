#![allow(clippy::unwrap_used)]
use super::*;
use crate::{Block, BlockState, EventKind, Lane, Operation, Options, Publisher, Split};

const LANES: usize = 3;

/// The publisher and the lanes.
const WRITERS: usize = 1 + LANES;

/// A vector clock: how many events of each writer are known.
type VectorClock = [u64; WRITERS];

/// A program whose operations are chosen one by one by the test.
struct Program {
    publisher: Publisher,
    lanes: Vec<Lane>,
    clocks: [VectorClock; WRITERS],
    /// The writer of each event, and its vector clock, which includes the event. The size of an event is its number.
    events: Vec<(usize, VectorClock)>,
    seed: u64,
}

impl Program {
    fn new(dir: &std::path::Path, seed: u64) -> Program {
        let options = Options {
            dir: Some(dir.join("channels")),
            blocks: 16,
            segments: 4,
            events: 1024,
            lanes: LANES as u32,
            lane_events: 1024,
            ..Options::default()
        };
        Program {
            publisher: Publisher::create(&options).unwrap(),
            lanes: Vec::new(),
            clocks: [[0; WRITERS]; WRITERS],
            events: Vec::new(),
            seed: seed * 2 + 1,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.seed >> 33) % n
    }

    fn met(&mut self, lane: usize) {
        let both: VectorClock = std::array::from_fn(|n| self.clocks[0][n].max(self.clocks[1 + lane][n]));
        (self.clocks[0], self.clocks[1 + lane]) = (both, both);
    }

    /// Runs some operations, all within a tick or two of the clock.
    fn run(&mut self) {
        for _ in 0..self.below(12) {
            let writer = self.below(WRITERS as u64) as usize;
            let lane = writer.checked_sub(1);
            match lane.map(|lane| (lane, self.lanes.len() > lane)) {
                Some((_, false)) => {
                    self.met(self.lanes.len());
                    self.lanes.push(self.publisher.lane(0, 7).unwrap());
                    continue;
                }
                Some((lane, true)) if self.below(2) == 0 => {
                    self.met(lane);
                    self.publisher.meet(&mut self.lanes[lane]);
                    continue;
                }
                _ => {}
            }
            self.clocks[writer][writer] += 1;
            let block = Block {
                size: self.events.len() as u64,
                ..Block::default()
            };
            let operation = Operation {
                kind: EventKind::Alloc,
                slot: 0,
                state: BlockState::Allocated,
                block: &block,
                next: None,
                split: Split::NO,
            };
            self.events.push((writer, self.clocks[writer]));
            match lane {
                None => self.publisher.operation(&operation),
                Some(lane) => self.lanes[lane].operation(&operation),
            };
        }
    }

    /// Whether an event happened before another, directly or through other writers.
    fn came_before(&self, one: &Event, other: &Event) -> bool {
        let (writer, clock) = self.events[one.size as usize];
        one.size != other.size && self.events[other.size as usize].1[writer] >= clock[writer]
    }
}

/// Whatever happens between the counts: events before a meeting come before those after it, also on another lane and in
/// a later call, and a call returns all events that existed before it.
#[test]
fn events_are_returned_in_causal_order() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for seed in 0..600 {
        let mut program = Program::new(dir.path(), seed);
        let mut reader = Reader::open(program.publisher.path()).unwrap();
        let mut returned = Vec::new();
        for _ in 0..10 {
            program.run();
            let sure = program.events.len();
            reader.find_lanes().unwrap();
            for ring in 1..reader.rings.len() {
                reader.look_at_lane(ring).unwrap();
                program.run();
            }
            reader.look_at_own_ring().unwrap();
            program.run();
            reader.look_at_lanes_again().unwrap();
            program.run();
            assert_eq!(reader.hand_out(|event| returned.push(*event)).unwrap(), 0);
            assert!(returned.len() >= sure, "{seed}: an event waits for no reason");
        }
        reader.each_event(|event| returned.push(*event)).unwrap();
        assert_eq!(returned.len(), program.events.len(), "{seed}");
        for (n, later) in returned.iter().enumerate() {
            let wrong = returned[..n].iter().find(|earlier| program.came_before(later, earlier));
            assert_eq!(wrong, None, "{seed}: handed out before {later:?}");
        }
        std::fs::remove_file(program.publisher.path()).unwrap();
    }
}

fn stored(time: u64, order: u32, index: u64) -> Stored {
    Stored {
        event: Event {
            time,
            index,
            ..Event::default()
        },
        order,
        ..Stored::default()
    }
}

#[test]
fn meeting_numbers_may_wrap_and_rings_stay_in_order() {
    let mut shown = Vec::new();
    let queues = [
        vec![stored(5, u32::MAX, 0), stored(5, 1, 1), stored(6, 1, 2)],
        vec![stored(5, u32::MAX, 10), stored(5, 0, 11), stored(4, 9, 12)],
    ];
    merge(&queues, |stored| shown.push(stored.event.index));
    assert_eq!(shown, [0, 10, 11, 12, 1, 2]);
    assert_eq!(later(Some(u32::MAX), Some(0)), Some(0));
    assert_eq!(later(Some(3), Some(2)), Some(3));
    assert_eq!(later(None, Some(2)), Some(2));
}
