//! Random programs that do what reports say would have helped: they are served then.

use gpumem_alloc::device::{Sim, Timeline};
use gpumem_alloc::{Allocator, Buffer, Config, Error, Help, OomReport, Overflow, Pool, PoolConfig};
use gpumem_alloc::{Route, SegmentMode, Stream};

use crate::common::{MIB, start};

const PROGRAMS: u64 = 600;
const STEPS: usize = 300;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn often(&mut self) -> bool {
        self.below(2) == 0
    }

    fn mib(&mut self, least: u64, more: u64) -> u64 {
        (least + self.below(more)) << 20
    }

    /// From less than a page to much of the budget.
    fn request(&mut self) -> usize {
        const M: u64 = MIB as u64;
        let bytes = match self.below(5) {
            0 => 1 + self.below(M),
            1 => 1 + self.below(4 * M),
            2 => M + self.below(20 * M),
            3 => 10 * M + self.below(60 * M),
            _ => [1, 2, 3, 8, 20][self.below(5) as usize] * M,
        };
        bytes as usize
    }
}

struct Program {
    random: Random,
    sim: Sim,
    alloc: Allocator,
    budget: u64,
    pools: Vec<Pool>,
    graph: Option<Pool>,
    streams: u64,
    held: Vec<Buffer<u8>>,
    /// Requests that were refused and whose report was heeded.
    heeded: usize,
}

impl Program {
    fn new(seed: u64) -> Program {
        let mut random = Random(seed);
        let budget = random.mib(60, 400) + random.below(MIB as u64);
        let modes = [
            SegmentMode::Plain,
            SegmentMode::Virtual,
            SegmentMode::Stitched,
            SegmentMode::Stitched,
        ];
        let config = Config {
            segments: modes[random.below(4) as usize],
            budget: Some(budget),
            release_on_oom: random.often(),
            cross_stream_reuse: random.often(),
            max_chunk: random.mib(1, 1) << random.below(7),
            ..Config::default()
        };
        let total = 200 + random.below(2000) as usize;
        let (sim, alloc) = start(total * MIB, Timeline::Manual, config);
        let pools = (0..random.below(3)).map(|n| {
            let config = PoolConfig {
                budget: random.often().then(|| random.mib(30, 200)),
                overflow: [Overflow::Refuse, Overflow::Shared][random.below(2) as usize],
                priority: random.below(3) as i32 - 1,
            };
            alloc.pool(&n.to_string(), config).unwrap()
        });
        Program {
            pools: pools.collect(),
            streams: 1 + random.below(3),
            random,
            sim,
            alloc,
            budget,
            graph: None,
            held: Vec::new(),
            heeded: 0,
        }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..20 => self.request(),
            20..36 => {
                for _ in 0..=self.random.below(4) {
                    if !self.held.is_empty() {
                        let at = self.random.below(self.held.len() as u64) as usize;
                        let buffer = self.held.swap_remove(at);
                        if self.random.often() {
                            let user = Stream(self.random.below(self.streams));
                            self.sim.enqueue(user, buffer.device_ptr(), buffer.bytes());
                            buffer.record_stream(user).unwrap();
                        }
                    }
                }
            }
            36..39 => self.sim.finish(Stream(self.random.below(self.streams))),
            _ => self.capture(),
        }
    }

    /// The capture of a graph begins, or ends.
    fn capture(&mut self) {
        match self.graph.take() {
            Some(graph) => {
                self.alloc.end_allocate_to_pool(&graph).unwrap();
            }
            None => {
                let graph = self.alloc.private_pool().unwrap();
                let route = Route::Stream(Stream(self.streams));
                self.alloc.begin_allocate_to_pool(&graph, route).unwrap();
                self.graph = Some(graph);
            }
        }
    }

    fn request(&mut self) {
        let (bytes, stream) = (self.random.request(), Stream(self.random.below(self.streams)));
        let pool = self.random.below(self.pools.len() as u64 + 1) as usize;
        let Err(report) = self.ask(pool, bytes, stream) else {
            return;
        };
        let help = report.helps[self.random.below(report.helps.len() as u64) as usize];
        let budget = self.budget;
        if help == Help::Exhausted {
            return self.nothing_helps(pool, bytes, stream);
        }
        let Some(bytes) = self.heed(help, &report, pool, bytes) else {
            return;
        };
        self.heeded += 1;
        if let Err(again) = self.ask(pool, bytes, stream) {
            panic!("{help} did not help\n{report}\n{again}");
        }
        if self.random.below(3) == 0 && self.budget != budget {
            self.budget = budget;
            self.alloc.set_budget(Some(budget)).unwrap();
        }
    }

    /// Nor does anything that can be done without a larger budget.
    fn nothing_helps(&mut self, pool: usize, bytes: usize, stream: Stream) {
        if self.graph.is_some() {
            self.capture();
        }
        self.alloc.release_cached().unwrap();
        assert!(self.ask(pool, bytes, stream).is_err(), "something would have helped");
    }

    /// From a pool, or of everybody's memory.
    fn ask(&mut self, pool: usize, bytes: usize, stream: Stream) -> Result<(), Box<OomReport>> {
        let asked = match self.pools.get(pool) {
            Some(pool) => pool.alloc::<u8>(bytes, stream),
            None => self.alloc.alloc::<u8>(bytes, stream),
        };
        match asked {
            Ok(buffer) => {
                self.sim.enqueue(stream, buffer.device_ptr(), buffer.bytes());
                self.held.push(buffer);
                Ok(())
            }
            Err(Error::OutOfMemory(report)) => Err(report),
            Err(error) => panic!("{error}"),
        }
    }

    /// Does what a help says. The bytes to ask for then; `None` where there is nothing to do.
    fn heed(&mut self, help: Help, report: &OomReport, pool: usize, asked: usize) -> Option<usize> {
        let pool = self.pools.get(pool);
        match help {
            Help::ReleaseCache { .. } => {
                pool.map_or_else(|| self.alloc.release_cached(), Pool::release_cached)
                    .unwrap();
            }
            Help::ReleasePools { .. } => {
                self.alloc.release_cached().unwrap();
            }
            Help::EndCapture => {
                self.capture();
                self.alloc.release_cached().unwrap();
            }
            Help::Wait { capturing } => {
                if capturing {
                    self.capture();
                }
                (0..=self.streams).for_each(|stream| self.sim.finish(Stream(stream)));
                // What other streams have freed is had only by who waits through the allocator.
                self.alloc.settle().unwrap();
            }
            Help::RaiseBudgets { pool: bytes, all } => {
                let pool = pool.unwrap();
                pool.set_budget(pool.budget().map(|budget| budget + bytes)).unwrap();
                self.budget += all;
                self.alloc.set_budget(Some(self.budget)).unwrap();
            }
            Help::RaisePoolBudget { bytes } => {
                let pool = pool.unwrap();
                pool.set_budget(pool.budget().map(|budget| budget + bytes)).unwrap();
            }
            Help::RaiseBudget { bytes } => {
                self.budget += bytes;
                self.alloc.set_budget(Some(self.budget)).unwrap();
            }
            Help::JoinHoles { .. } => {
                self.alloc.join_holes(asked as u64, report.stream).unwrap();
            }
            Help::SmallerBy { bytes } => return Some(asked - bytes as usize),
            _ => return None,
        }
        Some(asked)
    }
}

#[test]
fn what_a_report_says_would_have_helped_does() {
    let mut heeded = 0;
    for seed in 0..PROGRAMS {
        let mut program = Program::new(seed);
        for step in 0..STEPS {
            let stepped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| program.step()));
            assert!(stepped.is_ok(), "program {seed}, step {step}");
        }
        heeded += program.heeded;
    }
    assert!(
        heeded > PROGRAMS as usize,
        "{heeded} reports are too few to say anything"
    );
}
