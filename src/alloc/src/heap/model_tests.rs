//! Random programs on a simulated device whose streams finish late, judged after every step.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;

use gpumem_channel::BlockState;

use super::check::Seen;
use super::naive_tests::{self, Naive};
use super::pools_tests::{Pools, unless_capturing};
use super::program_tests::{Op, TOTAL, config, program};
use super::*;
use crate::device::{Live, Sim, SimConfig, Timeline};
use crate::stack::Stack;
use crate::stream::Stream;
use crate::tag::Tag;

const MIB: u64 = 1 << 20;

/// A block the program holds, and what it wrote into it.
#[derive(Debug)]
struct Held {
    grant: Grant,
    requested: u64,
    stream: Stream,
    stamp: u32,
}

/// The naive model: a list of blocks held.
pub(super) struct World {
    pub(super) sim: Sim,
    pub(super) heap: Heap,
    held: Vec<Held>,
    naive: Naive,
    pools: Pools,
    stamps: u32,
    config: Config,
    budget: Option<u64>,
    /// Bytes reserved after the last step.
    reserved: u64,
    /// Whether driver calls fail in this world.
    pub(super) faulty: bool,
}

impl World {
    pub(super) fn new(config: &Config, timeline: Timeline) -> World {
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
            stamps: 0,
            config: config.clone(),
            budget: config.budget,
            reserved: 0,
            faulty: false,
        }
    }

    fn pick(&self, index: &prop::sample::Index) -> Option<usize> {
        (!self.held.is_empty()).then(|| index.index(self.held.len()))
    }

    /// Runs one step. Driver errors are the caller's business; everything else must be as the model says.
    pub(super) fn step(&mut self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Alloc { bytes, stream } => self.alloc(COMMON, *bytes, Stream(*stream)),
            Op::Pool { config, private } => {
                self.pools.make(&mut self.heap, *config, *private);
                Ok(())
            }
            Op::PoolAlloc { pool, bytes, stream } => self.alloc(self.pools.pick(pool), *bytes, Stream(*stream)),
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
                    self.alloc(COMMON, held.requested, held.stream)
                }
                None => Ok(()),
            },
            Op::Use { block, stream } => match self.pick(block) {
                Some(at) => {
                    let grant = self.held[at].grant;
                    self.sim.enqueue(Stream(*stream), grant.addr, grant.size);
                    self.heap.record_use(grant.block, Stream(*stream))
                }
                None => Ok(()),
            },
            Op::Work(block) => {
                if let Some(at) = self.pick(block) {
                    let held = &self.held[at];
                    self.sim.enqueue(held.stream, held.grant.addr, held.grant.size);
                }
                Ok(())
            }
            Op::Advance { stream, steps } => {
                self.sim.advance(Stream(*stream), *steps);
                Ok(())
            }
            Op::Poll => {
                self.heap.poll_pending();
                self.judge_free();
                Ok(())
            }
            Op::Release => self.release(),
            Op::Compact => self.compact(),
            Op::Join { bytes, stream } => self.join(*bytes, Stream(*stream)),
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
        }
    }

    fn alloc(&mut self, arena: u16, bytes: u64, stream: Stream) -> Result<(), Error> {
        let caller = naive_tests::caller(bytes);
        self.heap.attribute(caller.1);
        let quick = (arena == COMMON)
            .then(|| self.heap.front.allocate(bytes, stream, caller.0, true))
            .flatten();
        let granted = match quick {
            Some(grant) => Ok(grant),
            None => self.allocate(arena, bytes, stream, caller.0),
        };
        self.heap.attribute(Stack::NONE);
        let grant = match granted {
            Ok(grant) => grant,
            Err(Error::OutOfMemory(report)) => {
                self.judge(&report);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
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
            stream,
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
                self.alloc(COMMON, *bytes, Stream(*stream))?;
                if let Some(last) = self.held.last().filter(|_| self.held.len() > outside) {
                    self.sim.enqueue(last.stream, last.grant.addr, last.grant.size);
                }
                if *done {
                    self.sim.finish(Stream(*stream));
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

    /// The heap is let go of while the driver is called: others give blocks back before and after the call, or had the turn first.
    fn allocate(&mut self, arena: u16, bytes: u64, stream: Stream, tag: Tag) -> Result<Grant, Error> {
        if bytes.is_multiple_of(5) {
            return self.heap.allocate_in(arena, bytes, stream, tag);
        }
        if arena == COMMON
            && let Some(grant) = self.heap.allocate_short(bytes, stream, tag)
        {
            return Ok(grant);
        }
        let mut attempt = self.heap.attempt(arena, bytes, stream, tag);
        for calls in 0.. {
            let suspended = match attempt {
                Attempt::Done(result) => return result,
                Attempt::Suspended(suspended) => *suspended,
            };
            assert!(calls < 100, "it goes on for ever");
            self.heap.check();
            if bytes.is_multiple_of(2) {
                self.meanwhile();
            }
            if calls == 0 && bytes.is_multiple_of(7) {
                attempt = self.heap.resume_anew(suspended);
                continue;
            }
            let made = suspended.run();
            if bytes.is_multiple_of(3) {
                self.meanwhile();
            }
            attempt = self.heap.resume(made);
        }
        unreachable!("a request is served or refused")
    }

    fn meanwhile(&mut self) {
        if let Some(held) = self.held.pop() {
            self.give_back(held.grant);
        }
        self.heap.check();
    }

    fn give_back(&mut self, grant: Grant) {
        if !self.heap.front.free(grant.held, true) {
            self.heap.free(self.heap.front.block_of(grant.held).unwrap());
        }
        self.naive.freed(grant);
    }

    /// What the options about sizes promise of a block, on plain segments.
    fn judge_size(&self, bytes: u64, grant: Grant) {
        let rounded = self.config.roundup_power2_divisions.round(bytes);
        assert!(grant.size >= rounded);
        let limit = self.config.max_split_size.map(|limit| limit.next_multiple_of(2 * MIB));
        if let Some(limit) = limit {
            let whole = self
                .heap
                .segments
                .get(self.heap.blocks[grant.block].segment)
                .unwrap()
                .size;
            let (may, alone) = (self.config.max_non_split_rounding, whole == grant.size);
            if rounded <= limit {
                assert!(whole <= limit, "{bytes} of {whole}");
            } else {
                assert!(alone && grant.size - rounded < may, "{bytes} of {whole}");
            }
        }
    }

    /// Free blocks are counted as they would be found by a request.
    fn judge_free(&mut self) {
        let told = self.heap.free_blocks();
        let free: Vec<u64> = self.seen(BlockState::Free).map(|block| block.size).collect();
        assert_eq!(
            (told.total, told.count, told.largest),
            (
                free.iter().sum(),
                free.len() as u64,
                free.iter().copied().max().unwrap_or(0)
            )
        );
        assert_eq!(self.seen(BlockState::Quick).count(), 0, "nothing is set aside any more");
    }

    fn judge(&self, report: &crate::OomReport) {
        let free: u64 = self.seen(BlockState::Free).map(|b| b.size).sum();
        let pending: u64 = self.seen(BlockState::PendingFree).map(|b| b.whole).sum();
        assert_eq!((report.total_free, report.pending), (free, pending));
        assert_eq!(report.allocated, self.held.iter().map(|h| h.grant.size).sum::<u64>());
        assert!(report.largest_free <= free && !report.helps.is_empty());
    }

    fn seen(&self, state: BlockState) -> impl Iterator<Item = Seen> {
        self.heap
            .all_blocks()
            .into_iter()
            .filter(move |block| block.state == state)
    }

    fn release(&mut self) -> Result<(), Error> {
        let before = self.sim.live().bytes;
        let released = self.heap.release_cached();
        let Some(freed) = unless_capturing(&self.pools, released)? else {
            return Ok(());
        };
        self.pools.judge_gone(&self.heap);
        let back = before - self.sim.live().bytes;
        // What an earlier failure left behind comes back too; it was no longer counted as reserved.
        assert!(
            back == freed || self.faulty && back > freed,
            "{freed} came free, the device got {back}"
        );
        Ok(())
    }

    /// What came free the device got, and of what stayed nothing whole lies apart.
    fn compact(&mut self) -> Result<(), Error> {
        let before = self.sim.live().bytes;
        let compacted = self.heap.compact();
        let Some(report) = unless_capturing(&self.pools, compacted)? else {
            return Ok(());
        };
        let back = before - self.sim.live().bytes;
        assert!(back == report.released || self.faulty && back > report.released);
        self.judge_free();
        let mut whole = 0;
        for (_, segment) in self.heap.segments.iter() {
            let free = |block: &Seen| {
                block.state == BlockState::Free && segment.addr <= block.addr && block.addr < segment.end()
            };
            let chunks = |block: Seen| segment.bytes_within(block.addr, block.addr + block.size);
            whole += self.heap.all_blocks().into_iter().filter(free).map(chunks).sum::<u64>();
            let one = segment.first != NIL && segment.first == segment.last;
            let idle = one && self.heap.blocks[segment.first].state == BlockState::Free;
            assert!(
                !idle
                    || segment.kind == gpumem_channel::SegmentKind::Virtual
                    || !self.heap.arenas.may_shrink(segment.arena),
                "a free segment stayed"
            );
        }
        let joined = self.heap.sizes.mode != SegmentMode::Virtual || report.after.largest >= whole;
        assert!(joined, "{whole} bytes of whole chunks lie apart: {report:?}");
        Ok(())
    }

    /// Memory on the device that is no pool's. What a pool leaves behind goes back by itself, at any time.
    fn common_memory(&self) -> u64 {
        let pools = self.heap.segments.iter().filter(|(_, segment)| segment.arena != COMMON);
        self.sim.live().bytes - pools.map(|(_, segment)| segment.mapped).sum::<u64>()
    }

    fn join(&mut self, bytes: u64, stream: Stream) -> Result<(), Error> {
        let before = self.common_memory();
        let joined = self.heap.join(bytes, stream);
        match unless_capturing(&self.pools, joined) {
            Ok(None) => Ok(()),
            Ok(Some(report)) => {
                assert_eq!(self.common_memory(), before, "no new memory");
                assert!(report.contiguous >= bytes);
                let grant = self.heap.allocate(bytes, stream, Tag(0)).unwrap();
                assert_eq!(self.common_memory(), before, "the request fits without new memory");
                self.naive.allocated(grant, (Tag(0), Stack::NONE));
                self.heap.free(grant.block);
                self.naive.freed(grant);
                Ok(())
            }
            Err(Error::HolesTooSmall { available, requested }) => {
                assert!(available < requested);
                Ok(())
            }
            Err(Error::NotVirtual) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Everything that must hold between steps.
    pub(super) fn judge_all(&mut self) {
        self.heap.check();
        self.naive.judge(&self.heap);
        self.pools
            .judge(&self.heap, self.held.iter().map(|held| (held.grant, held.requested)));
        assert_eq!(self.sim.violations(), Vec::<String>::new());
        let all = self.heap.stats().all();
        assert_eq!(all.allocation.current, self.held.len() as u64);
        assert_eq!(
            all.allocated_bytes.current,
            self.held.iter().map(|h| h.grant.size).sum::<u64>()
        );
        let pending = all.active_bytes.current - all.allocated_bytes.current;
        assert_eq!(
            pending,
            self.seen(BlockState::PendingFree).map(|b| b.whole).sum::<u64>()
        );
        let reserved = all.reserved_bytes.current;
        let allowed = self.budget.map_or(u64::MAX, |budget| budget.max(self.reserved));
        assert!(reserved <= allowed, "{reserved} are reserved, {allowed} allowed");
        self.reserved = reserved;
    }

    /// Live blocks hold what was written into them.
    pub(super) fn judge_contents(&self) {
        self.pools.judge_mapped(&self.heap);
        for held in &self.held {
            assert!(held.requested <= held.grant.size);
            for at in [
                held.grant.addr,
                held.grant.addr + held.grant.size / 8 * 4,
                held.grant.addr + held.grant.size - 4,
            ] {
                let mut word = [0; 4];
                let driver = &self.heap.driver;
                let read = driver.read(at, &mut word, held.stream);
                // A failure injected there is not the heap's, and comes once.
                read.or_else(|_| driver.read(at, &mut word, held.stream)).unwrap();
                assert_eq!(u32::from_le_bytes(word), held.stamp);
            }
        }
    }

    /// Frees everything and drops the heap; nothing may be left.
    pub(super) fn end(mut self) {
        for held in std::mem::take(&mut self.held) {
            self.heap.free(held.grant.block);
        }
        self.heap.check();
        drop(self.heap);
        assert_eq!(self.sim.live(), Live::default(), "nothing leaks");
        assert_eq!(self.sim.violations(), Vec::<String>::new());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_keep_every_promise(config in config(), ops in program(120)) {
        let mut world = World::new(&config, Timeline::Manual);
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
