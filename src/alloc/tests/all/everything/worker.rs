//! What a thread does.

use std::sync::atomic::Ordering;

use gpumem_alloc::{Error, Route, Stream};

use crate::everything::program::{Index, Op, SHARED, on};
use crate::everything::world::{Held, Open, What, World, expected};

/// Injected failures may be the test's own copies.
const TRIES: usize = 20;

/// A thread.
pub(crate) struct Worker<'a> {
    pub(crate) world: &'a World,
    pub(crate) held: Vec<Held>,
    /// The stream that is its own, and how many were before.
    pub(crate) own: Stream,
    pub(crate) lives: u64,
}

impl Worker<'_> {
    fn stream(&self, place: u64) -> Stream {
        match place {
            SHARED => self.own,
            place => Stream(place),
        }
    }

    fn pick(&self, index: &Index) -> Option<usize> {
        (!self.held.is_empty()).then(|| index.index(self.held.len()))
    }

    fn hold(&mut self, what: What, bytes: u64, stream: Stream, from: Option<&Open>) {
        let (addr, size) = match &what {
            What::Buffer(buffer) => (buffer.device_ptr(), buffer.allocated_bytes()),
            What::Raw(addr) => (*addr, bytes),
        };
        let World { sim, .. } = self.world;
        assert!(
            !sim.busy_for(stream, addr, size),
            "another stream still uses the new block"
        );
        let stamp = self.world.made.fetch_add(1, Ordering::Relaxed) as u8;
        let mut held = Held {
            what,
            addr,
            bytes,
            size,
            stream,
            lasts: stream != self.own,
            life: self.lives,
            stamp,
        };
        self.world.take(&held, from);
        if let What::Buffer(buffer) = &mut held.what {
            let word = u32::from_ne_bytes([stamp; 4]);
            let filled = (0..TRIES).any(|_| buffer.fill_words(word).is_ok());
            assert!(filled);
        }
        self.held.push(held);
    }

    /// What was written is there.
    fn judge(&self, held: &Held) {
        let What::Buffer(buffer) = &held.what else { return };
        let words = held.bytes / 4 * 4;
        for at in [0, words / 2, words.saturating_sub(1)] {
            if at < words {
                let mut byte = [0];
                let read = (0..TRIES).any(|_| buffer.read_at(at as usize, &mut byte).is_ok());
                assert!(read);
                assert_eq!(byte, [held.stamp], "contents are lost");
            }
        }
    }

    fn give_back(&mut self, at: usize) {
        let held = self.held.swap_remove(at);
        if self.may_name(&held) {
            self.judge(&held);
        }
        self.world.give(&held);
        if let What::Raw(addr) = held.what {
            self.world.alloc.free_raw(addr).unwrap();
        }
    }

    /// Whether its stream, or what came in its place, is there for this thread.
    fn may_name(&self, held: &Held) -> bool {
        held.lasts || held.life == self.lives
    }

    pub(crate) fn step(&mut self, op: &Op) {
        let world = self.world;
        let World { sim, alloc, .. } = world;
        match op {
            Op::Alloc { bytes, stream, raw } => {
                let stream = self.stream(*stream);
                let _scope = (bytes % 3 == 0).then(|| gpumem_alloc::scope("threes"));
                let what = match raw {
                    true => alloc.alloc_raw(*bytes, stream).map(What::Raw),
                    false => alloc.alloc::<u8>(*bytes as usize, stream).map(What::Buffer),
                };
                if let Some(what) = expected(world, what) {
                    self.hold(what, *bytes, stream, None);
                }
            }
            Op::PoolAlloc {
                pool,
                bytes,
                stream,
                raw,
            } => {
                let Some(open) = world.pick(pool) else { return };
                let stream = self.stream(*stream);
                let what = match raw {
                    true => open.pool.alloc_raw(*bytes, stream).map(What::Raw),
                    false => open.pool.alloc::<u8>(*bytes as usize, stream).map(What::Buffer),
                };
                if let Some(what) = expected(world, what) {
                    self.hold(what, *bytes, stream, Some(&open));
                }
                let figures = open.pool.stats();
                let most = open.config.budget.filter(|_| !open.private);
                assert!(most.is_none_or(|most| figures.reserved_bytes.peak <= most));
            }
            Op::Free(block) => {
                if let Some(at) = self.pick(block) {
                    self.give_back(at);
                }
            }
            Op::FreeAfter { block, stream } => {
                let stream = self.stream(*stream);
                // Of a stream that has ended the handle means the one that came after it.
                let Some(at) = self.pick(block).filter(|at| self.may_name(&self.held[*at])) else {
                    return;
                };
                if let What::Raw(addr) = self.held[at].what {
                    let held = self.held.swap_remove(at);
                    world.give(&held);
                    sim.enqueue(stream, held.addr, held.size);
                    let ordinal = alloc.device().info().ordinal;
                    alloc.free_raw_after(addr, ordinal, stream).unwrap();
                }
            }
            Op::Send(block) => {
                if let Some(at) = self.pick(block).filter(|at| self.held[*at].lasts) {
                    world.sent.lock().unwrap().push(self.held.swap_remove(at));
                }
            }
            Op::Take => self.held.extend(world.sent.lock().unwrap().pop()),
            Op::Use { block, stream } => {
                let stream = self.stream(*stream);
                let Some(at) = self.pick(block) else { return };
                let held = &self.held[at];
                sim.enqueue(stream, held.addr, held.size);
                match &held.what {
                    What::Buffer(buffer) => buffer.record_stream(stream).unwrap(),
                    What::Raw(0) => {}
                    What::Raw(addr) => alloc.record_stream_raw(*addr, stream).unwrap(),
                }
            }
            Op::Work(block) => {
                let Some(at) = self.pick(block) else { return };
                let held = &self.held[at];
                if self.may_name(held) {
                    sim.enqueue(held.stream, held.addr, held.size);
                }
            }
            Op::Advance { stream, steps } => sim.advance(self.stream(*stream), *steps),
            Op::Retire { again } => {
                if expected(world, alloc.retire_stream(self.own)).is_none() {
                    return;
                }
                sim.destroy_stream(self.own);
                self.lives += 1;
                match again {
                    true => sim.create_stream(self.own),
                    false => self.own = Stream(self.own.0 + 1000),
                }
            }
            Op::Pool { config, private } => {
                let made = match private {
                    true => alloc.private_pool(),
                    false => alloc.pool(&world.made.fetch_add(1, Ordering::Relaxed).to_string(), *config),
                };
                let (pool, config, private) = (made.unwrap(), *config, *private);
                world.pools.lock().unwrap().push(Open {
                    pool,
                    config,
                    private,
                    ever: Vec::new(),
                });
            }
            Op::PoolClose(pool) => {
                let mut pools = world.pools.lock().unwrap();
                if !pools.is_empty() {
                    let at = pool.index(pools.len());
                    let gone = pools.swap_remove(at);
                    // Gives memory back: not under the lock.
                    drop(pools);
                    drop(gone);
                }
            }
            Op::PoolRelease(pool) => {
                let Some(open) = world.pick(pool) else { return };
                let released = expected(world, open.pool.release_cached());
                assert!(!open.private || released.unwrap_or(0) == 0);
            }
            Op::Begin { pool, stream } => {
                let Some(open) = world.pick(pool) else { return };
                world.routes.fetch_add(1, Ordering::SeqCst);
                let route = stream.map_or(Route::ThisThread, |stream| Route::Stream(self.stream(stream)));
                expected(world, alloc.begin_allocate_to_pool(&open.pool, route));
            }
            Op::End(pool) => {
                let Some(open) = world.pick(pool) else { return };
                alloc.end_allocate_to_pool(&open.pool).unwrap();
            }
            Op::Budget(budget) => {
                expected(world, alloc.set_budget(*budget));
            }
            Op::Fraction(fraction) => {
                expected(world, alloc.set_memory_fraction(*fraction));
            }
            Op::Others(bytes) => sim.set_used_by_others(*bytes),
            Op::Record(history) => alloc.record_history(on(*history)).unwrap(),
            Op::Step => alloc.step(),
            Op::Release => {
                expected(world, alloc.release_cached());
            }
            Op::Compact => {
                expected(world, alloc.compact());
            }
            Op::Join { bytes, stream } => match alloc.join_holes(*bytes, self.stream(*stream)) {
                Err(Error::NotVirtual | Error::HolesTooSmall { .. }) => {}
                result => drop(expected(world, result)),
            },
            Op::Reserve { bytes, stream } => {
                expected(world, alloc.reserve(*bytes, self.stream(*stream)));
            }
            Op::Poll => alloc.poll(),
            Op::Look => world.look(),
            Op::Misuse(block) => {
                let Some(at) = self.pick(block) else { return };
                let wrong = match self.held[at].what {
                    What::Raw(0) => 5,
                    What::Raw(addr) => addr + 1,
                    What::Buffer(_) => self.held[at].addr.max(7),
                };
                assert!(matches!(alloc.free_raw(wrong), Err(Error::UnknownPointer { .. })));
                let huge = alloc.alloc_raw(u64::MAX - 5, self.own);
                assert!(matches!(huge, Err(Error::TooLarge { .. })));
            }
            Op::Fail { skip, out_of_memory } => sim.fail_after(*skip, *out_of_memory),
            Op::FailNext { call, times } => sim.fail_next(*call, *times),
        }
    }
}
