//! Why a request did not fit.

use gpumem_channel::{BlockState, SegmentKind};

use super::Heap;
use super::allocate::Request;
use super::block::NIL;
use crate::device::MemoryInfo;
use crate::report::{Help, OomReport, PoolShortage};
use crate::size::Class;

/// What the cache holds, as far as it matters to a request.
#[derive(Clone, Copy, Debug, Default)]
struct Cache {
    /// The largest free block of the request's class.
    largest: u64,
    /// All free blocks.
    free: u64,
    /// What a release would give back, of the request's pool.
    releasable: u64,
    /// The same of all others.
    others: u64,
    /// Whole free chunks of virtual segments.
    joinable: u64,
}

impl Heap {
    /// `memory`: what the device says it has.
    pub(super) fn explain(&self, request: &Request, memory: Option<MemoryInfo>) -> OomReport {
        let cache = self.survey(request);
        OomReport {
            requested: request.requested,
            rounded: request.size,
            stream: self.streams.name(request.stream),
            pool: self.arenas.get(request.arena).map(|arena| PoolShortage {
                name: arena.name.clone(),
                budget: arena.config.budget,
                reserved: arena.figures.reserved_bytes.current,
                allocated: arena.figures.allocated_bytes.current,
            }),
            device_free: memory.map(|memory| memory.free),
            device_total: self.driver.info().total,
            largest_free: cache.largest,
            total_free: cache.free,
            pending: self.ledger.pending(),
            reserved: self.ledger.reserved(),
            allocated: self.allocated_bytes(),
            budget: self.budget,
            helps: self.helps(request, cache, memory.map_or(0, |memory| memory.free)),
        }
    }

    fn helps(&self, request: &Request, cache: Cache, device_free: u64) -> Vec<Help> {
        let (_, needed) = self.sizes.growth(request.class, request.size);
        let pool = self.pool_left(request.arena);
        let outside = |extra: u64| device_free.min(self.budget_left()).saturating_add(extra);
        let room = |extra: u64| outside(extra).min(pool.saturating_add(extra));
        let mut helps = Vec::new();
        if cache.releasable > 0 && room(cache.releasable) >= needed {
            helps.push(Help::ReleaseCache {
                bytes: cache.releasable,
            });
        }
        if cache.others > 0 && outside(cache.others).min(pool) >= needed {
            helps.push(Help::ReleasePools { bytes: cache.others });
        }
        if pool < needed && outside(0) >= needed {
            helps.push(Help::RaisePoolBudget { bytes: needed - pool });
        }
        if request.class == Class::Chunked && cache.joinable >= request.size {
            helps.push(Help::JoinHoles { bytes: cache.joinable });
        }
        let largest = cache
            .largest
            .max(room(0) / self.sizes.granularity * self.sizes.granularity);
        if largest > 0 && largest < request.size {
            helps.push(Help::SmallerBy {
                bytes: request.size - largest,
            });
        }
        if helps.is_empty() {
            helps.push(Help::Exhausted);
        }
        helps
    }

    /// Whether nothing but its size keeps a free block from a request: one that may not be split is kept from smaller ones.
    fn may_serve(&self, size: u64, block: u64) -> bool {
        block < size || self.sizes.takes(size, block)
    }

    fn survey(&self, request: &Request) -> Cache {
        let mut cache = Cache::default();
        for (_, segment) in self.segments.iter() {
            let mine = segment.arena == request.arena;
            let mut all_free = true;
            let mut whole_chunks = 0;
            let mut b = segment.first;
            while b != NIL {
                let block = &self.blocks[b];
                match block.state {
                    BlockState::Free => {
                        cache.free += block.size;
                        whole_chunks += segment.bytes_within(block.addr, block.addr + block.size);
                        if mine && block.class == request.class && self.may_serve(request.size, block.size) {
                            cache.largest = cache.largest.max(block.size);
                        }
                    }
                    _ => all_free = false,
                }
                b = block.next;
            }
            let mut released = if all_free { segment.size } else { 0 };
            if segment.kind == SegmentKind::Virtual {
                cache.joinable += whole_chunks;
                released = whole_chunks;
            }
            if self.arenas.may_shrink(segment.arena) {
                *(if mine { &mut cache.releasable } else { &mut cache.others }) += released;
            }
        }
        cache
    }
}
