//! Why a request did not fit.

use gpumem_channel::SegmentKind;

use super::Heap;
use super::allocate::Request;
use super::block::Block;
use super::segment::Segment;
use crate::device::MemoryInfo;
use crate::free::Key;
use crate::report::{Help, OomReport, PoolShortage};
use crate::size::Class;

/// What the cache holds, as far as it matters to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

impl Cache {
    fn release(&mut self, bytes: u64, mine: bool) {
        *(if mine { &mut self.releasable } else { &mut self.others }) += bytes;
    }
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
        let left = self.budget_left();
        let whole = needed.next_multiple_of(self.sizes.granularity);
        if left < whole && device_free.min(pool) >= whole {
            helps.push(Help::RaiseBudget { bytes: whole - left });
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

    /// By what is free alone: some programs ask for less and less until they are not refused, and hold very many blocks.
    fn survey(&self, request: &Request) -> Cache {
        let mut cache = Cache::default();
        for line in self.streams.indices().map(|at| self.streams.line(at)) {
            let mine = line.arena == request.arena;
            let mut chunks = 0;
            for (class, index) in line.free.iter().enumerate() {
                let serves = mine && class == request.class as usize;
                index.each(|key| {
                    cache.free += key.size;
                    chunks += self.whole_chunks(key);
                    if serves && self.may_serve(request.size, key.size) {
                        cache.largest = cache.largest.max(key.size);
                    }
                });
            }
            cache.joinable += chunks;
            if self.arenas.may_shrink(line.arena) {
                cache.release(chunks, mine);
            }
        }
        for (_, segment) in self.segments.iter().filter(|(_, segment)| self.is_idle(segment)) {
            cache.release(segment.size, segment.arena == request.arena);
        }
        cache
    }

    /// Bytes of whole chunks in a free block.
    fn whole_chunks(&self, key: Key) -> u64 {
        // No chunk is smaller, and most free blocks are.
        if key.size < self.sizes.granularity {
            return 0;
        }
        let segment = self.segments.get(self.blocks[key.block].segment);
        segment.map_or(0, |segment| segment.bytes_within(key.addr, key.addr + key.size))
    }

    /// Whether a release may give a plain segment back: all its blocks are free.
    fn is_idle(&self, segment: &Segment) -> bool {
        let free = |b: &u32| self.blocks.get(*b).is_some_and(Block::is_free);
        segment.kind != SegmentKind::Virtual
            && self.arenas.may_shrink(segment.arena)
            && std::iter::successors(Some(segment.first).filter(free), |b| {
                Some(self.blocks[*b].next).filter(free)
            })
            .last()
                == Some(segment.last)
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
