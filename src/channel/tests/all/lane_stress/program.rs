//! A program with a heap and one cache per lane, each with its lock, like the allocator.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use gpumem_channel::{
    Block, BlockState, DeviceStats, Event, EventKind, Lane, LaneFigures, Operation, Options, Publisher, Segment, Split,
    StringId, Touched,
};

use crate::common::{Count, Random, options, publisher_with};

pub(crate) const LANES: usize = 4;
/// Number of blocks of every lane at first. In the segment each is followed by one of the publisher's blocks, of twice
/// the size, which the publisher splits and joins.
pub(crate) const EACH: usize = 8;
pub(crate) const PAIRS: usize = LANES * EACH;
pub(crate) const UNIT: u64 = 1024;
pub(crate) const OPERATIONS: u64 = 60_000;
pub(crate) const ROUNDS: u64 = 3;
/// Size of a ring. No writer gets further ahead of the reader than half of it.
pub(crate) const RING: u64 = 1 << 14;

/// Returns the slots of a lane's block, of the publisher's block after it, and of the first half of that block while it
/// is split.
pub(crate) fn slots(pair: usize) -> [u32; 3] {
    [pair as u32, (PAIRS + pair) as u32, (2 * PAIRS + pair) as u32]
}

pub(crate) fn addr(pair: usize) -> u64 {
    (1 << 40) + pair as u64 * 3 * UNIT
}

/// Returns a lane's block, whose fields show whether they were stored together.
pub(crate) fn lent(pair: usize, requested: u64, epoch: u64) -> Block {
    Block {
        addr: addr(pair),
        size: UNIT,
        requested,
        stream: epoch,
        state: if requested > 0 {
            BlockState::Allocated
        } else {
            BlockState::Free
        },
        tag: StringId((requested % 7) as u32),
        ..Block::default()
    }
}

pub(crate) struct Held {
    pub(crate) pair: usize,
    pub(crate) requested: u64,
    pub(crate) next: u32,
}

/// The data guarded by a lane's lock.
pub(crate) struct Front {
    pub(crate) lane: Lane,
    pub(crate) figures: LaneFigures,
    pub(crate) blocks: Vec<Held>,
    /// Number of meetings so far. Every event has it in its stream field.
    pub(crate) epoch: u64,
}

impl Front {
    pub(crate) fn toggle(&mut self, random: &mut Random) {
        let epoch = self.epoch;
        let one = random.below(self.blocks.len() as u64) as usize;
        let held = &mut self.blocks[one];
        let small = &mut self.figures.small;
        let (kind, block) = if held.requested == 0 {
            held.requested = 1 + random.below(UNIT);
            small.allocation.add(1);
            small.requested_bytes.add(held.requested);
            small.allocated_bytes.add(UNIT);
            (EventKind::Alloc, lent(held.pair, held.requested, epoch))
        } else {
            small.allocation.sub(1);
            small.requested_bytes.sub(held.requested);
            small.allocated_bytes.sub(UNIT);
            // The event has the requested size and tag, the block does not.
            let state = BlockState::Free;
            let was = lent(held.pair, std::mem::take(&mut held.requested), epoch);
            (EventKind::Free, Block { state, ..was })
        };
        let published = self.lane.operation(&Operation {
            kind,
            slot: slots(held.pair)[0],
            state: block.state,
            block: &block,
            next: Some(held.next),
            split: Split::NO,
        });
        if published.figures_due {
            self.lane.figures(&self.figures);
        }
    }
}

pub(crate) fn mark(lane: usize, epoch: u64) -> Event {
    Event {
        kind: EventKind::Mark,
        size: lane as u64,
        stream: epoch,
        ..Event::default()
    }
}

/// The data guarded by the heap's lock.
pub(crate) struct Heap {
    pub(crate) publisher: Publisher,
    pub(crate) split: [bool; PAIRS],
    pub(crate) events: u64,
}

impl Heap {
    pub(crate) fn new(options: &Options) -> Heap {
        let mut publisher = publisher_with(options);
        publisher.stats(0, &DeviceStats::default(), Touched::ALL);
        let mut heap = Heap {
            publisher,
            split: [false; PAIRS],
            events: 0,
        };
        heap.publisher.segment_begin(0);
        for pair in 0..PAIRS {
            heap.publisher
                .block(slots(pair)[0], &lent(pair, 0, 0), Some(slots(pair)[1]));
            heap.publish_own(pair);
        }
        let size = 3 * UNIT * PAIRS as u64;
        let segment = Segment {
            addr: addr(0),
            size,
            mapped: size,
            ..Segment::default()
        };
        heap.publisher.segment_end(0, Some((&segment, Some(0))));
        heap
    }

    /// Publishes the publisher's block after a lane's.
    pub(crate) fn publish_own(&mut self, pair: usize) {
        let [_, whole, half] = slots(pair);
        let split = self.split[pair];
        let own = |at: u64, size| Block {
            addr: addr(pair) + UNIT + at,
            size,
            ..Block::default()
        };
        let next = (pair + 1 < PAIRS).then(|| slots(pair + 1)[0]);
        if split {
            self.publisher.block(half, &own(0, UNIT), Some(whole));
            self.publisher.block(whole, &own(UNIT, UNIT), next);
        } else {
            self.publisher.block(whole, &own(0, 2 * UNIT), next);
            self.publisher.clear_block(half);
        }
    }

    /// Meets a lane, and publishes a mark before and after.
    pub(crate) fn meet(&mut self, number: usize, front: &mut Front) {
        self.publisher.event(&mark(number, front.epoch));
        self.publisher.meet(&mut front.lane);
        front.epoch += 1;
        self.events += 2;
        self.publisher.event(&mark(number, front.epoch));
    }

    /// Splits or joins the block after a lane's block, which then gets another neighbour.
    pub(crate) fn restructure(&mut self, number: usize, front: &mut Front, random: &mut Random) {
        self.meet(number, front);
        let epoch = front.epoch;
        let one = random.below(front.blocks.len() as u64) as usize;
        let held = &mut front.blocks[one];
        let split = &mut self.split[held.pair];
        *split = !*split;
        held.next = slots(held.pair)[if *split { 2 } else { 1 }];
        self.publisher.segment_begin(0);
        self.publish_own(held.pair);
        let block = lent(held.pair, held.requested, epoch);
        assert!(
            front
                .lane
                .block(slots(held.pair)[0], block.state, &block, Some(held.next))
        );
        self.publisher.segment_close(0);
        self.publisher.stats(0, &DeviceStats::default(), Touched::COLD);
    }

    /// Lends a free block to another lane.
    pub(crate) fn hand_over(&mut self, (from, giver): (usize, &mut Front), (to, taker): (usize, &mut Front)) {
        self.meet(from, giver);
        self.meet(to, taker);
        let free = giver.blocks.iter().position(|held| held.requested == 0);
        if let Some(free) = free.filter(|_| giver.blocks.len() > 1) {
            let held = giver.blocks.swap_remove(free);
            let block = lent(held.pair, 0, taker.epoch);
            assert!(self.publisher.block(slots(held.pair)[0], &block, Some(held.next)));
            taker.blocks.push(held);
        }
    }
}

pub(crate) struct Program {
    pub(crate) heap: Mutex<Heap>,
    pub(crate) fronts: [Mutex<Front>; LANES],
    pub(crate) running: AtomicUsize,
    /// Whether a reader is running and has found no error.
    pub(crate) watched: AtomicBool,
    /// Number of events that the reader has read, of the publisher and of each lane.
    pub(crate) taken: [AtomicU64; 1 + LANES],
}

impl Program {
    /// Makes a program whose rings hold `ring` events.
    pub(crate) fn new(dir: &Path, ring: u64) -> Program {
        let options = Options {
            events: ring as u32,
            lanes: LANES as u32,
            lane_events: ring as u32,
            ..options(dir)
        };
        let mut heap = Heap::new(&options);
        let front = |number: usize| {
            let pairs = (0..PAIRS).filter(|pair| pair % LANES == number);
            Mutex::new(Front {
                lane: heap.publisher.lane(0, number as u64).unwrap(),
                figures: LaneFigures::default(),
                blocks: pairs
                    .map(|pair| Held {
                        pair,
                        requested: 0,
                        next: slots(pair)[1],
                    })
                    .collect(),
                epoch: 0,
            })
        };
        let fronts = std::array::from_fn(front);
        Program {
            heap: Mutex::new(heap),
            fronts,
            running: AtomicUsize::new(LANES),
            watched: AtomicBool::new(true),
            taken: Default::default(),
        }
    }

    /// Waits until the reader is close enough.
    pub(crate) fn wait(&self, ring: usize, published: u64) {
        while self.watched.load(Ordering::Relaxed) && published > self.taken[ring].load(Ordering::Relaxed) + RING / 2 {
            std::thread::yield_now();
        }
    }

    pub(crate) fn front(&self, number: usize) -> MutexGuard<'_, Front> {
        self.fronts[number].lock().unwrap()
    }

    pub(crate) fn work_on_lane(&self, number: usize, mut random: Random) {
        for n in 0..OPERATIONS {
            self.wait(1 + number, n);
            let mut front = self.front(number);
            front.toggle(&mut random);
        }
        self.running.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn work_on_heap(&self, mut random: Random) {
        while self.running.load(Ordering::Acquire) > 0 {
            let mut heap = self.heap.lock().unwrap();
            let one = random.below(LANES as u64) as usize;
            let other = (one + 1 + random.below(LANES as u64 - 1) as usize) % LANES;
            match random.below(3) {
                0 => heap.meet(one, &mut self.front(one)),
                1 => heap.restructure(one, &mut self.front(one), &mut random),
                _ => {
                    // Always in the same order, to avoid a deadlock.
                    let mut low = self.front(one.min(other));
                    let mut high = self.front(one.max(other));
                    heap.hand_over((one.min(other), &mut low), (one.max(other), &mut high));
                }
            }
            let events = heap.events;
            drop(heap);
            // No reader reads the events meanwhile, and the ring has space for no more than a lane's.
            if events >= OPERATIONS && !self.watched.load(Ordering::Relaxed) {
                return;
            }
            self.wait(0, events);
            std::thread::yield_now();
        }
    }
}

/// Ends the waiting for the reader when it ends, even by a panic.
pub(crate) struct Watch<'a>(pub(crate) &'a Program);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.watched.store(false, Ordering::Relaxed);
    }
}
