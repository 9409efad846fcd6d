//! Pools against a naive model: what each one holds, and every address that a private one ever handed out.
#![allow(clippy::unwrap_used)]

use gpumem_channel::BlockState;

use crate::error::Error;
use crate::heap::{COMMON, Grant, Heap, NewPool};
use crate::pool::{Overflow, PoolBlock, PoolConfig, PoolFigures};
use crate::stream::Stream;

struct Pool {
    arena: u16,
    config: PoolConfig,
    private: bool,
    /// What a graph may still use.
    ever: Vec<(u64, u64)>,
    /// The same where it is private, with what was asked for.
    places: Vec<PoolBlock>,
    captured: bool,
}

/// The pools of a world.
#[derive(Default)]
pub(in crate::heap) struct Pools {
    open: Vec<Pool>,
    made: u32,
}

impl Pools {
    pub(in crate::heap) fn make(&mut self, heap: &mut Heap, config: PoolConfig, private: bool) {
        self.made += 1;
        let config = if private { PoolConfig::default() } else { config };
        let name = self.made.to_string();
        let new = match private {
            true => NewPool::Private(None),
            false => NewPool::Named(&name),
        };
        let arena = heap.add_arena(new, config).unwrap();
        assert_eq!(
            heap.pool_figures(arena),
            PoolFigures::default(),
            "a new pool has nothing"
        );
        self.open.push(Pool {
            arena,
            config,
            private,
            ever: Vec::new(),
            places: Vec::new(),
            captured: false,
        });
    }

    /// The arena of one of the pools.
    pub(in crate::heap) fn pick(&self, index: &proptest::sample::Index) -> u16 {
        match self.open.len() {
            0 => COMMON,
            len => self.open[index.index(len)].arena,
        }
    }

    /// A place that a private pool once handed out, and the pool's arena.
    pub(in crate::heap) fn place(&self, index: &proptest::sample::Index) -> Option<(u16, PoolBlock)> {
        let places: Vec<_> = self
            .open
            .iter()
            .flat_map(|pool| pool.places.iter().map(|place| (pool.arena, *place)))
            .collect();
        (!places.is_empty()).then(|| places[index.index(places.len())])
    }

    pub(in crate::heap) fn capturing(&self) -> bool {
        self.open.iter().any(|pool| pool.captured)
    }

    /// A capture for a private pool begins or ends.
    pub(in crate::heap) fn capture(&mut self, heap: &mut Heap, arena: u16) {
        let Some(pool) = self.open.iter_mut().find(|pool| pool.arena == arena && pool.private) else {
            return;
        };
        pool.captured = !pool.captured;
        match pool.captured {
            true => heap.begin_capture(),
            false => heap.end_capture(),
        }
    }

    pub(in crate::heap) fn close(&mut self, heap: &mut Heap, arena: u16) {
        if let Some(at) = self.open.iter().position(|pool| pool.arena == arena) {
            if self.open[at].captured {
                self.capture(heap, arena);
            }
            self.open.remove(at);
            heap.close_arena(arena);
        }
    }

    /// A request was granted: from where it was asked for, and from nowhere that a graph may use.
    pub(in crate::heap) fn granted(&mut self, heap: &Heap, asked: u16, grant: Grant) {
        let arena = heap.arena_of(grant.block);
        for pool in &mut self.open {
            if pool.arena == asked {
                let overflowed = arena == COMMON && pool.config.overflow == Overflow::Shared;
                assert!(arena == asked || overflowed);
            }
            if pool.arena != arena {
                let apart = |(addr, size): &(u64, u64)| grant.addr + grant.size <= *addr || addr + size <= grant.addr;
                assert!(pool.ever.iter().all(apart), "a graph may use what was handed out");
            } else if pool.private {
                pool.ever.push((grant.addr, grant.size));
                let held = heap.held_of(arena);
                pool.places
                    .extend(held.into_iter().filter(|block| block.addr == grant.addr));
            }
        }
        assert!(arena == asked || arena == COMMON);
    }

    /// Peaks were reset just now.
    pub(in crate::heap) fn judge_peaks(&self, heap: &Heap) {
        for pool in &self.open {
            for stat in heap.pool_figures(pool.arena).stats_mut() {
                assert_eq!(stat.peak, stat.current);
            }
        }
    }

    /// What is held, as blocks with what was asked for, makes the figures, and nobody has more than allowed.
    pub(in crate::heap) fn judge(&self, heap: &Heap, held: impl Iterator<Item = (Grant, u64)>) {
        let held: Vec<_> = held
            .map(|(grant, bytes)| (heap.arena_of(grant.block), grant.size, bytes))
            .collect();
        for pool in &self.open {
            let its = held.iter().filter(|(arena, ..)| *arena == pool.arena);
            let (count, size, bytes) = its.fold((0, 0, 0), |sum, (_, size, bytes)| {
                (sum.0 + 1, sum.1 + size, sum.2 + bytes)
            });
            let segments = heap.segments.iter().filter(|(_, segment)| segment.arena == pool.arena);
            let sizes: Vec<u64> = segments.map(|(_, segment)| segment.size).collect();
            let waiting = heap
                .blocks
                .iter()
                .filter(|block| block.state == BlockState::PendingFree);
            let waiting = waiting.filter(|block| heap.streams.line(block.stream).arena == pool.arena);
            let (waits, waiting) = waiting.fold((0, 0), |(count, bytes), block| (count + 1, bytes + block.size));
            let figures = heap.pool_figures(pool.arena);
            let current = [
                figures.allocation,
                figures.active,
                figures.allocated_bytes,
                figures.active_bytes,
                figures.requested_bytes,
                figures.segment,
                figures.reserved_bytes,
            ];
            let expected = [
                count,
                count + waits,
                size,
                size + waiting,
                bytes,
                sizes.len() as u64,
                sizes.iter().sum(),
            ];
            assert_eq!(current.map(|stat| stat.current), expected);
            assert!(current.iter().all(|stat| stat.peak >= stat.current));
            assert!(
                pool.config
                    .budget
                    .is_none_or(|budget| figures.reserved_bytes.peak <= budget)
            );
        }
    }

    /// Every address that a graph may use is there.
    pub(in crate::heap) fn judge_mapped(&self, heap: &Heap) {
        for (addr, size) in self.open.iter().flat_map(|pool| &pool.ever) {
            let mut word = [0; 4];
            heap.driver.read(*addr, &mut word, Stream(0)).unwrap();
            heap.driver.read(addr + size - 4, &mut word, Stream(0)).unwrap();
        }
    }

    /// After everything free was given back nothing is left of pools that are gone, but what is held.
    pub(in crate::heap) fn judge_gone(&self, heap: &Heap) {
        let left = heap.arenas.iter().filter(|(_, arena)| arena.is_gone()).count();
        assert_eq!(left, 0);
    }
}

/// While a graph is captured some things are refused, and only then.
pub(in crate::heap) fn unless_capturing<T>(pools: &Pools, result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(Error::Capturing) => {
            assert!(pools.capturing());
            Ok(None)
        }
        other => other.map(Some),
    }
}
