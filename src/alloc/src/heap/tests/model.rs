//! Random programs on a simulated device whose streams finish late, judged after every step.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;

use crate::device::{Sim, SimConfig, Timeline};
use crate::heap::tests::campaign;
use crate::heap::tests::naive::{self, Naive};
use crate::heap::tests::pools::Pools;
use crate::heap::tests::program::{Op, TOTAL, config, program, timeline};
use crate::heap::tests::streams::{Life, Lives};
use crate::heap::*;
use crate::stack::Stack;
use crate::tag::Tag;

/// A block the program holds, and what it wrote into it.
#[derive(Debug)]
pub(in crate::heap) struct Held {
    pub(in crate::heap) grant: Grant,
    pub(in crate::heap) requested: u64,
    pub(in crate::heap) stream: Life,
    pub(in crate::heap) stamp: u32,
}

/// The naive model: a list of blocks held.
pub(in crate::heap) struct World {
    pub(in crate::heap) sim: Sim,
    pub(in crate::heap) heap: Heap,
    pub(in crate::heap) held: Vec<Held>,
    pub(in crate::heap) naive: Naive,
    pub(in crate::heap) pools: Pools,
    pub(in crate::heap) lives: Lives,
    stamps: u32,
    pub(in crate::heap) config: Config,
    pub(in crate::heap) budget: Option<u64>,
    /// Requests that were refused.
    pub(in crate::heap) ooms: u64,
    /// Bytes reserved after the last step.
    pub(in crate::heap) reserved: u64,
    /// Whether driver calls fail in this world.
    pub(in crate::heap) faulty: bool,
    /// Whether nobody else is at work.
    pub(in crate::heap) alone: bool,
    /// Whether no stream ends.
    pub(in crate::heap) steady: bool,
}

impl World {
    pub(in crate::heap) fn new(config: &Config, timeline: Timeline) -> World {
        let sim = Sim::new(SimConfig {
            total: TOTAL,
            timeline,
            ..SimConfig::default()
        });
        let heap = Heap::new(sim.device().driver, config, crate::lane::Front::alone()).unwrap();
        World {
            sim,
            heap,
            held: Vec::new(),
            naive: Naive::default(),
            pools: Pools::default(),
            lives: Lives::new(),
            stamps: 0,
            config: config.clone(),
            budget: config.budget,
            ooms: 0,
            reserved: 0,
            faulty: false,
            alone: false,
            steady: false,
        }
    }

    fn pick(&self, index: &prop::sample::Index) -> Option<usize> {
        (!self.held.is_empty()).then(|| index.index(self.held.len()))
    }

    /// Runs one step, and gives back what is left of pools that went by it. Driver errors are the caller's business; everything else must be
    /// as the model says.
    pub(in crate::heap) fn step(&mut self, op: &Op) -> Result<(), Error> {
        let result = self.do_step(op);
        self.heap.run_errands();
        if self.heap.has_closing() {
            let shrunk = self.heap.shrink_closing();
            assert!(self.faulty || shrunk.is_ok());
        }
        result
    }

    fn do_step(&mut self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Alloc { bytes, stream } => self.alloc(COMMON, *bytes, *stream),
            Op::Pool { config, private } => {
                self.pools.make(&mut self.heap, *config, *private);
                Ok(())
            }
            Op::PoolAlloc { pool, bytes, stream } => self.alloc(self.pools.pick(pool), *bytes, *stream),
            Op::PoolAgain(index) => self.take_again(index),
            Op::PoolClose(pool) => {
                self.pools.close(&mut self.heap, self.pools.pick(pool));
                Ok(())
            }
            Op::Capture(pool) => {
                self.pools.capture(&mut self.heap, self.pools.pick(pool));
                Ok(())
            }
            Op::Free(index) => {
                if let Some(at) = self.pick(index) {
                    let held = self.held.swap_remove(at);
                    self.give_back(held.grant);
                }
                Ok(())
            }
            Op::Loop { requests, held, rounds } => {
                for _ in 0..*rounds {
                    self.round(requests, *held)?;
                }
                Ok(())
            }
            Op::Again(index) => match self.pick(index) {
                Some(at) => {
                    let held = self.held.swap_remove(at);
                    self.give_back(held.grant);
                    self.alloc(COMMON, held.requested, held.stream.place as u64)
                }
                None => Ok(()),
            },
            Op::Use { block, stream } => match self.pick(block) {
                Some(at) => {
                    let (grant, stream) = (self.held[at].grant, self.lives.stream(*stream));
                    self.sim.enqueue(stream, grant.addr, grant.size);
                    self.heap.record_use(grant.block, stream, Default::default())
                }
                None => Ok(()),
            },
            Op::Work(block) => {
                if let Some(at) = self.pick(block) {
                    let held = &self.held[at];
                    if let Some(stream) = self.lives.alive(held.stream) {
                        self.sim.enqueue(stream, held.grant.addr, held.grant.size);
                    }
                }
                Ok(())
            }
            Op::Advance { stream, steps } => {
                self.lives.advance(&self.sim, *stream, *steps);
                Ok(())
            }
            Op::Retire { stream, again } => {
                self.retire(*stream, *again);
                Ok(())
            }
            Op::Poll => {
                self.poll();
                self.judge_free();
                Ok(())
            }
            Op::Release => self.release(),
            Op::Compact => self.compact(),
            Op::Join { bytes, stream } => self.join(*bytes, self.lives.stream(*stream)),
            Op::Record(max_events) => {
                self.naive.record(&mut self.heap, *max_events);
                Ok(())
            }
            Op::Budget(budget) => {
                let before = self.heap.stats().all().reserved_bytes.current;
                self.budget = *budget;
                self.heap.set_budget(*budget)?;
                let reserved = self.heap.stats().all().reserved_bytes.current;
                assert!(reserved <= before);
                let over = !self.pools.capturing() && budget.is_some_and(|budget| reserved > budget);
                assert!(!over || self.heap.release_cached()? == 0, "nothing more could go back");
                Ok(())
            }
            Op::Step => {
                self.naive.step(&mut self.heap);
                Ok(())
            }
            Op::ResetPeaks => {
                self.heap.reset_peaks();
                self.naive.reset_peak();
                self.judge_peaks();
                Ok(())
            }
        }
    }

    fn alloc(&mut self, arena: u16, bytes: u64, place: u64) -> Result<(), Error> {
        let stream = self.lives.stream(place);
        let caller = naive::caller(bytes);
        self.heap.attribute(caller.1);
        let quick = (arena == COMMON)
            .then(|| self.heap.lend_quick(bytes, stream, caller.0, true))
            .flatten();
        let granted = match quick {
            Some(grant) => Ok(grant),
            None => self.allocate(arena, bytes, place, caller.0),
        };
        self.heap.attribute(Stack::NONE);
        let grant = match granted {
            Ok(grant) => grant,
            Err(Error::OutOfMemory(report)) => {
                self.ooms += 1;
                self.judge(&report);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.hold(arena, grant, bytes, (place, caller))
    }

    /// A block of a private pool is wanted where one was before: it is to be had if nobody holds it, once the device is done with it.
    fn take_again(&mut self, index: &prop::sample::Index) -> Result<(), Error> {
        let places = self.pools.place(index);
        let Some((arena, block)) = places else { return Ok(()) };
        let Some(place) = (0..3).find(|place| self.lives.stream(*place) == block.stream) else {
            return Ok(());
        };
        let caller = naive::caller(block.requested);
        let end = block.addr + block.bytes;
        let apart = |held: &Held| held.grant.addr + held.grant.size <= block.addr || end <= held.grant.addr;
        let free = self.held.iter().all(apart);
        self.heap.attribute(caller.1);
        let mut granted = self.heap.allocate_at(arena, &block, caller.0);
        if free && !self.pools.capturing() && matches!(granted, Err(Error::NotFree { .. })) {
            self.heap.wait_for_device()?;
            granted = self.heap.allocate_at(arena, &block, caller.0);
            assert!(granted.is_ok(), "{granted:?}");
        }
        self.heap.attribute(Stack::NONE);
        let grant = match granted {
            Ok(grant) => grant,
            Err(Error::NotFree { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        assert!(free);
        assert_eq!((grant.addr, grant.size), (block.addr, block.bytes));
        self.hold(arena, grant, block.requested, (place, caller))
    }

    /// A block that was handed out for so many bytes.
    pub(in crate::heap) fn hold(
        &mut self,
        arena: u16,
        grant: Grant,
        bytes: u64,
        (place, caller): (u64, (Tag, Stack)),
    ) -> Result<(), Error> {
        let stream = self.lives.stream(place);
        self.naive.allocated(grant, caller);
        self.pools.granted(&self.heap, arena, grant);
        assert!(grant.size >= bytes);
        self.judge_size(bytes, grant);
        for held in &self.held {
            let apart = grant.addr + grant.size <= held.grant.addr || held.grant.addr + held.grant.size <= grant.addr;
            assert!(apart, "a new block overlaps one that is held");
        }
        assert!(
            !self.sim.busy_for(stream, grant.addr, grant.size),
            "another stream still uses the new block"
        );
        self.stamps += 1;
        let held = Held {
            grant,
            requested: bytes,
            stream: self.lives.life(place),
            stamp: self.stamps,
        };
        self.heap
            .driver
            .fill(grant.addr, held.stamp, grant.size / 4, stream)
            .or_else(|error| {
                // The stamp is the test's own; a failure injected there is not the heap's.
                self.heap
                    .driver
                    .fill(grant.addr, held.stamp, grant.size / 4, stream)
                    .map_err(|_| error)
            })?;
        self.held.push(held);
        Ok(())
    }

    /// Allocates, and frees the oldest ones beyond so many of those, in the end all.
    fn round(&mut self, requests: &[(u64, u64, bool)], most: usize) -> Result<(), Error> {
        let outside = self.held.len();
        let end = requests.iter().map(Some).chain(std::iter::repeat_n(None, most + 1));
        for request in end {
            if let Some((bytes, stream, done)) = request {
                self.alloc(COMMON, *bytes, *stream)?;
                if let Some(last) = self.held.last().filter(|_| self.held.len() > outside)
                    && let Some(stream) = self.lives.alive(last.stream)
                {
                    self.sim.enqueue(stream, last.grant.addr, last.grant.size);
                }
                if *done {
                    self.sim.finish(self.lives.stream(*stream));
                }
            }
            if self.held.len() > outside + if request.is_some() { most } else { 0 } {
                let held = self.held.remove(outside);
                self.give_back(held.grant);
            }
            self.heap.check();
        }
        if !self.faulty {
            self.judge_contents();
        }
        Ok(())
    }

    pub(in crate::heap) fn give_back(&mut self, grant: Grant) {
        if self.heap.front.free(grant.held, true) {
            return self.naive.freed(grant);
        }
        let b = self.heap.front.block_of(grant.held).unwrap();
        self.naive.freed(grant);
        self.take_back(b);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: campaign(400), ..ProptestConfig::default() })]

    #[test]
    fn random_programs_keep_every_promise(config in config(), timeline in timeline(), ops in program(120)) {
        let mut world = World::new(&config, timeline);
        for op in &ops {
            world.step(op).unwrap();
            world.judge_all();
            if matches!(op, Op::Join { .. } | Op::Compact | Op::Release | Op::Alloc { .. }) {
                world.judge_contents();
            }
        }
        world.end();
    }
}
