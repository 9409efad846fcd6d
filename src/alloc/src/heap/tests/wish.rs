//! Requests that wait for the heap while others are served, give back, drain lanes and end streams: what is counted is what a list of
//! blocks says, and every request gets exactly one.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::config::SegmentMode;
use crate::device::{Sim, SimConfig};
use crate::heap::tests::heap_on;
use crate::heap::*;
use crate::lane::Wish;
use crate::stream::Stream;
use crate::tag::Tag;

const SIZES: [u64; 3] = [4096, 1536, 5 << 20];
/// As many as there are lanes.
const STREAMS: usize = 2;

#[derive(Clone, Debug)]
enum Op {
    /// A thread of a stream asks. Whom its lane does not serve waits for the heap, or has it at once.
    Ask {
        stream: usize,
        size: usize,
    },
    /// A thread that waits has the heap.
    Turn(prop::sample::Index),
    Free(prop::sample::Index),
    /// What lanes have set aside is the heap's again.
    Drain,
    /// A stream ends, perhaps while one waits.
    Retire(usize),
    /// Peaks count from now on.
    ResetPeaks,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        60 => (0..STREAMS, 0..SIZES.len()).prop_map(|(stream, size)| Op::Ask { stream, size }),
        20 => any::<prop::sample::Index>().prop_map(Op::Turn),
        60 => any::<prop::sample::Index>().prop_map(Op::Free),
        1 => Just(Op::Drain),
        1 => (0..STREAMS).prop_map(Op::Retire),
        1 => Just(Op::ResetPeaks),
    ]
}

/// A thread that waits. Whether it was served already.
struct Waiting {
    wish: Wish,
    served: bool,
}

/// Blocks, bytes asked for and bytes held: now, the most, and all that ever came.
#[derive(Debug, Default, PartialEq)]
struct Figures {
    now: [u64; 3],
    peak: [u64; 3],
    came: [u64; 3],
}

struct World {
    sim: Sim,
    heap: Heap,
    streams: [Stream; STREAMS],
    held: Vec<(Grant, u64)>,
    waiting: Vec<Waiting>,
    figures: Figures,
    /// Requests that were served together with another one.
    together: usize,
    /// Buffers that the heap handed out less those given back there: lanes count theirs.
    buffers: i64,
}

impl World {
    fn new(segments: SegmentMode) -> World {
        let config = Config {
            segments,
            ..Config::default()
        };
        let sim = Sim::new(SimConfig::default());
        World {
            heap: heap_on(&sim, config),
            sim,
            streams: [1, 2].map(Stream),
            held: Vec::new(),
            waiting: Vec::new(),
            figures: Figures::default(),
            together: 0,
            buffers: 0,
        }
    }

    /// Has lanes set blocks aside, one stream after the other, so that there is leave for few of them.
    fn warm_up(&mut self) {
        for stream in 0..STREAMS {
            for (size, blocks) in (0..SIZES.len()).flat_map(|size| [(size, 1), (size, 2), (size, 3)]) {
                for _ in 0..20 {
                    for _ in 0..blocks {
                        self.get(stream, size);
                    }
                    self.give_all_back();
                }
            }
        }
    }

    fn get(&mut self, stream: usize, size: usize) {
        self.step(&Op::Ask { stream, size });
        while !self.waiting.is_empty() {
            self.turn(0);
        }
    }

    fn give_all_back(&mut self) {
        for (grant, requested) in std::mem::take(&mut self.held) {
            self.give_back(grant, requested);
        }
    }

    fn count(&mut self, requested: u64, size: u64) {
        for (at, by) in [1, requested, size].into_iter().enumerate() {
            self.figures.now[at] += by;
            self.figures.came[at] += by;
            self.figures.peak[at] = self.figures.peak[at].max(self.figures.now[at]);
        }
    }

    fn hold(&mut self, grant: Grant, requested: u64) {
        assert!(grant.size >= requested);
        let end = |grant: &Grant| grant.addr + grant.size;
        let apart = |(other, _): &(Grant, u64)| end(&grant) <= other.addr || end(other) <= grant.addr;
        assert!(self.held.iter().all(apart), "a new block overlaps one that is held");
        self.held.push((grant, requested));
    }

    fn allocate(&mut self, requested: u64, stream: Stream) {
        let grant = self.heap.allocate(requested, stream, Tag(0)).unwrap();
        self.buffers += 1;
        self.count(requested, grant.size);
        self.hold(grant, requested);
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Ask { stream, size } => self.ask(*stream, SIZES[*size]),
            Op::Turn(index) => {
                if !self.waiting.is_empty() {
                    self.turn(index.index(self.waiting.len()));
                }
            }
            Op::Free(index) => {
                if !self.held.is_empty() {
                    let (grant, requested) = self.held.swap_remove(index.index(self.held.len()));
                    self.give_back(grant, requested);
                }
            }
            Op::Drain => {
                self.heap.release_cached().unwrap();
            }
            Op::Retire(stream) => {
                let ended = self.streams[*stream];
                self.heap.retire_stream(ended).unwrap();
                self.streams[*stream] = Stream(ended.0 + STREAMS as u64);
            }
            Op::ResetPeaks => {
                self.heap.reset_peaks();
                self.figures.peak = self.figures.now;
            }
        }
    }

    fn ask(&mut self, at: usize, size: u64) {
        let stream = self.streams[at];
        match self.heap.front.allocate((size, size), stream, Tag(0), true) {
            Ok(lent) => {
                self.count(size, size);
                self.hold(self.heap.front.all_of(lent).unwrap(), size);
            }
            Err(0) => self.allocate(size, stream),
            Err(size) => {
                let wish = Wish {
                    requested: size,
                    size,
                    stream,
                    tag: Tag(0),
                };
                let others = self.waiting.iter().filter(|other| other.wish.stream == stream);
                assert_eq!(others.count(), 0, "a lane keeps one wish");
                self.waiting.push(Waiting { wish, served: false });
            }
        }
    }

    /// One that waits has the heap, which serves all others as well.
    fn turn(&mut self, at: usize) {
        let Waiting { wish, served } = self.waiting.swap_remove(at);
        let lent = self.heap.lend_wished(&wish, true);
        for at in 0..self.waiting.len() {
            let Waiting { wish, served } = &mut self.waiting[at];
            if !*served && self.heap.front.is_served(wish) {
                *served = true;
                self.together += 1;
                let size = wish.size;
                self.count(size, size);
            }
        }
        match lent {
            Some(lent) => {
                if !served {
                    self.count(wish.size, wish.size);
                }
                self.hold(self.heap.front.all_of(lent).unwrap(), wish.size);
            }
            None => {
                assert!(!served, "what was served is lost");
                self.allocate(wish.size, wish.stream);
            }
        }
    }

    fn give_back(&mut self, grant: Grant, requested: u64) {
        if !self.heap.front.free(grant.held, true) {
            self.buffers -= 1;
            self.heap.free(self.heap.front.block_of(grant.held).unwrap());
        }
        for (now, by) in self.figures.now.iter_mut().zip([1, requested, grant.size]) {
            *now -= by;
        }
    }

    fn judge(&mut self) {
        let all = self.heap.stats().all();
        let stats = [&all.allocation, &all.requested_bytes, &all.allocated_bytes];
        let figures = Figures {
            now: stats.map(|stat| stat.current),
            peak: stats.map(|stat| stat.peak),
            came: stats.map(|stat| stat.allocated),
        };
        assert_eq!(figures, self.figures);
        assert_eq!(self.heap.front.buffers() + self.buffers, self.held.len() as i64);
        self.heap.check();
    }
}

/// Runs a program to its end. How many were served together with another one.
fn run(segments: SegmentMode, ops: &[Op]) -> usize {
    let mut world = World::new(segments);
    world.warm_up();
    for op in ops {
        world.step(op);
        world.judge();
    }
    while !world.waiting.is_empty() {
        world.turn(0);
        world.judge();
    }
    world.give_all_back();
    world.judge();
    assert_eq!(world.sim.violations(), Vec::<String>::new());
    world.together
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn who_waits_is_counted_once(plain in any::<bool>(), ops in ops()) {
        run(if plain { SegmentMode::Plain } else { SegmentMode::Auto }, &ops);
    }
}

/// Else threads that hold a block for moments only would take leave from each other for ever.
#[test]
fn who_waits_is_served_with_who_has_the_heap() {
    let mut runner = TestRunner::deterministic();
    let mut together = || run(SegmentMode::Auto, &ops().new_tree(&mut runner).unwrap().current());
    let together: usize = (0..100).map(|_| together()).sum();
    assert!(together >= 3, "{together}");
}

impl World {
    /// Takes so many blocks of a stream, and gives them back.
    fn take_and_give_back(&mut self, blocks: usize, bytes: u64, stream: Stream) {
        let take = |_| match self.heap.lend_quick(bytes, stream, Tag(0), true) {
            Some(grant) => grant,
            None => self.heap.allocate(bytes, stream, Tag(0)).unwrap(),
        };
        let grants: Vec<Grant> = (0..blocks).map(take).collect();
        for grant in grants {
            if !self.heap.front.free(grant.held, true) {
                self.heap.free(self.heap.front.block_of(grant.held).unwrap());
            }
        }
    }
}

/// What one wished for is not taken by another one that has something already.
#[test]
fn who_wishes_for_the_same_again_and_again_takes_no_block_of_anothers() {
    let (bytes, stream) = (4096, Stream(1));
    let wish = Wish {
        requested: bytes,
        size: bytes,
        stream,
        tag: Tag(0),
    };
    for _ in 0..20 {
        let (mut world, mut tag) = (World::new(SegmentMode::Auto), 0);
        // In the end the second stream's lane has leave to count what the first one's counted before.
        for stream in [1, 2, 1, 2].map(Stream) {
            (0..40).for_each(|_| world.take_and_give_back(60, bytes, stream));
        }
        let (front, done) = (world.heap.front, AtomicBool::new(false));
        let lane = 0;
        assert!(front.has(lane, bytes));
        let mut handed_out = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut lent = 0;
                while !done.load(Ordering::Relaxed) {
                    lent += usize::from(front.allocate((bytes, bytes), stream, Tag(0), true).is_ok());
                    if front.is_served(&wish) {
                        lent += usize::from(front.take_wished(&wish, true).is_some());
                    }
                }
                lent
            });
            let mut lent = 0;
            while front.has(lane, bytes) {
                // Each look at what is wished for costs the trial of lending something.
                if front.with(lane, |lane| lane.wish()).flatten().is_none() {
                    std::thread::yield_now();
                    continue;
                }
                // The other stream's lane does not know the tag, so that it is to be served, too.
                tag += 1;
                let others = Wish {
                    stream: Stream(2),
                    tag: Tag(tag),
                    ..wish
                };
                assert_eq!(
                    front.allocate((bytes, bytes), others.stream, others.tag, true).err(),
                    Some(bytes)
                );
                lent += usize::from(world.heap.lend_wished(&wish, true).is_some());
                assert!(front.free(front.take_wished(&others, true).unwrap().held, true));
            }
            done.store(true, Ordering::Relaxed);
            lent + other.join().unwrap()
        });
        handed_out += usize::from(front.take_wished(&wish, true).is_some());
        let held = front.with(lane, |lane| lane.held().len()).unwrap();
        assert_eq!((held, handed_out), (60, 60));
    }
}

/// A program that always holds as many blocks as it ever did, now one more small one and now one more large one: the leave for the last is
/// where it is wanted.
#[test]
fn who_holds_as_many_blocks_as_ever_gets_those_that_are_set_aside_without_a_wish() {
    let mut world = World::new(SegmentMode::Plain);
    let stream = world.streams[0];
    let front = world.heap.front;
    // Sizes that do not come again are not lent, and fewer bytes are no peak.
    let mut large = (1..).map(|n| (9 << 20) - n * 4096);
    let (small, request) = (SIZES[0], (SIZES[0], SIZES[0]));
    let mut ask = |heap: &mut Heap| {
        let bytes = large.next().unwrap();
        heap.allocate(bytes, stream, Tag(0)).unwrap()
    };
    let take_back = |heap: &mut Heap, grant: Grant| heap.take_back(heap.front.block_of(grant.held).unwrap());
    // Where new memory is taken, what is set aside is asked for first.
    let grant = ask(&mut world.heap);
    take_back(&mut world.heap, grant);
    for blocks in 1..=3 {
        for _ in 0..20 {
            (0..blocks).for_each(|_| world.get(0, 0));
            world.give_all_back();
        }
    }
    let held: Vec<Lent> = (0..2)
        .map(|_| front.allocate(request, stream, Tag(0), false).unwrap())
        .collect();
    let mut grant = ask(&mut world.heap);
    for round in 0..20 {
        take_back(&mut world.heap, grant);
        let small = match round {
            // Bytes it has leave for by and by, some more each time.
            0..5 => world.heap.lend_quick(small, stream, Tag(0), false).unwrap().held,
            _ => match front.allocate(request, stream, Tag(0), false) {
                Ok(lent) => lent.held,
                Err(wish) => panic!("round {round}: a wish for {wish} bytes"),
            },
        };
        assert!(front.free(small, false));
        grant = ask(&mut world.heap);
    }
    let stats = world.heap.stats();
    assert_eq!(stats.all().allocation.current, 3);
    assert_eq!(stats.all_peaks[0], 3);
    assert_eq!(stats.small.allocated_bytes.current, held.len() as u64 * small);
}
