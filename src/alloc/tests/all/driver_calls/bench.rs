//! An allocator on a device whose calls can be held.

use std::sync::mpsc;
use std::time::Duration;

use gpumem_alloc::device::{Call, Sim, Timeline};
use gpumem_alloc::{Allocator, Buffer, Config, Pool, PoolConfig, SegmentMode, Stream};

pub(crate) use crate::common::MIB;
use crate::common::{sharing, start};
pub(crate) const MINE: Stream = Stream(1);
pub(crate) const OTHER: Stream = Stream(2);

/// An allocator on a device of 256 MiB, with something of stream [`MINE`] held that has room beside it.
pub(crate) struct Bench {
    pub(crate) sim: Sim,
    pub(crate) alloc: Allocator,
    _kept: Buffer<u8>,
    /// Whether there is free memory for large blocks, too, whatever goes.
    pub(crate) roomy: bool,
}

impl Bench {
    pub(crate) fn new(config: Config, timeline: Timeline) -> Bench {
        let (sim, alloc) = start(256 * MIB, timeline, config);
        let _kept = alloc.alloc(MIB / 2, MINE).unwrap();
        // A size that the lane has.
        for _ in 0..2_000 {
            drop(alloc.alloc::<u8>(4096, MINE).unwrap());
        }
        Bench {
            sim,
            alloc,
            _kept,
            roomy: false,
        }
    }

    /// The same where nothing goes while the driver is called.
    pub(crate) fn roomy(segments: SegmentMode) -> Bench {
        Bench::of(segments).with_room()
    }

    pub(crate) fn with_room(self) -> Bench {
        self.alloc.reserve(32 << 20, MINE).unwrap();
        Bench { roomy: true, ..self }
    }

    pub(crate) fn of(segments: SegmentMode) -> Bench {
        Bench::new(sharing(segments), Timeline::After(3))
    }

    pub(crate) fn get(&self, mib: usize, stream: Stream) -> Buffer<u8> {
        self.alloc.alloc(mib * MIB, stream).unwrap()
    }

    /// What is cached of these sizes lies apart.
    pub(crate) fn cache<const N: usize>(&self, mib: [usize; N]) -> [Buffer<u8>; N] {
        let both = mib.map(|mib| (self.get(mib, OTHER), self.get(3, OTHER)));
        both.map(|(_, between)| between)
    }

    /// Others take memory and give it back, with work queued on it, while `slow` is in a call of a certain kind. Where that is
    /// one of those that they could do without they do, mostly.
    pub(crate) fn others_go_on<R: Send>(&self, call: Call, slow: impl FnOnce() -> R + Send) -> R {
        let allocations = || self.alloc.stats().all().allocation;
        let before = allocations();
        let asks = matches!(call, Call::QueryStream | Call::Record | Call::Query | Call::MemoryInfo);
        assert!(!asks || self.roomy, "others go by way of the heap");
        let pause = match asks {
            true => self.sim.pause_first(call),
            false => self.sim.pause(call),
        };
        let (told, hears) = mpsc::channel();
        std::thread::scope(|scope| {
            let slow = scope.spawn(slow);
            pause.wait();
            scope.spawn(move || {
                for n in 0..100 {
                    let buffer = self.alloc.alloc::<u8>(4096 + n % 3 * 50_000, MINE).unwrap();
                    self.sim.enqueue(MINE, buffer.device_ptr(), buffer.bytes());
                    if n % 10 == 0 && !asks {
                        buffer.record_stream(OTHER).unwrap();
                    }
                    if self.roomy {
                        drop(self.alloc.alloc::<u8>(2 * MIB + n * 5000, MINE).unwrap());
                    }
                }
                told.send(allocations()).unwrap();
            });
            let heard = hears.recv_timeout(Duration::from_secs(20));
            drop(pause);
            let Ok(heard) = heard else {
                panic!("they wait for {}", call.name())
            };
            assert!(heard.allocated >= before.allocated + 100 && heard.current <= before.current);
            slow.join().unwrap()
        })
    }

    pub(crate) fn reserved(&self) -> usize {
        self.alloc.stats().all().reserved_bytes.current as usize
    }

    pub(crate) fn end(self) {
        assert_eq!(self.sim.violations(), Vec::<String>::new());
        let sim = self.sim.clone();
        drop(self);
        assert_eq!(sim.live(), Default::default());
    }
}

/// A pool of some priority.
pub(crate) fn pool(bench: &Bench, priority: i32) -> Pool {
    let config = PoolConfig {
        priority,
        ..PoolConfig::default()
    };
    bench.alloc.pool(&priority.to_string(), config).unwrap()
}
