//! Why a request did not fit.

mod later;

use gpumem_channel::SegmentKind;

use super::Heap;
use super::allocate::Request;
use super::arena::COMMON;
use super::block::Block;
use super::grow::place::Place;
use super::segment::Segment;
use crate::config::SegmentMode;
use crate::device::MemoryInfo;
use crate::free::{FreeIndex, Key};
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
    /// Of that, what such a request has given back for it.
    gives_way: u64,
    /// Whole free chunks of virtual segments.
    joinable: u64,
}

impl Cache {
    fn release(&mut self, bytes: u64, mine: bool, gives_way: bool) {
        *(if mine { &mut self.releasable } else { &mut self.others }) += bytes;
        self.gives_way += if gives_way { bytes } else { 0 };
    }
}

impl Heap {
    /// `sent_to`: the arena that it was sent to, though it may overflow; `memory`: what the device says it has.
    pub(super) fn explain(&self, request: &Request, sent_to: u16, memory: Option<MemoryInfo>) -> OomReport {
        let cache = self.survey(request, sent_to);
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
            helps: self.helps(request, sent_to, cache, memory.map_or(0, |memory| memory.free)),
        }
    }

    fn helps(&self, request: &Request, sent_to: u16, cache: Cache, device_free: u64) -> Vec<Help> {
        let (_, needed) = self.sizes.growth(request.class, request.size);
        // Budgets and devices need not be of whole pages.
        let pages = |bytes: u64| bytes.next_multiple_of(self.sizes.granularity);
        let whole = pages(needed);
        // New memory for it: what lies free beside its place need not be taken anew, but after a release, with which some of that goes.
        let place = self.best_place(request).filter(|_| request.arena == COMMON);
        let missing = place.map_or(whole, |place| place.missing);
        let after = place.map_or(whole, |place| pages(request.size - self.kept_before(place, request)));
        let (budget, reserved) = (self.budget, self.ledger.reserved());
        let arena = self.arenas.get(request.arena);
        let pool_reserved = arena.map_or(0, |arena| arena.figures.reserved_bytes.current);
        let pool_budget = arena.and_then(|arena| arena.config.budget);
        // More may be reserved than a budget allows that was lowered.
        let left = |budget: Option<u64>, reserved: u64, extra: u64| {
            budget.map_or(u64::MAX, |budget| budget.saturating_add(extra).saturating_sub(reserved))
        };
        let pool = |extra: u64| left(pool_budget, pool_reserved, extra);
        let outside = |extra: u64| device_free.saturating_add(extra).min(left(budget, reserved, extra));
        let releases = |cache: &Cache, after: u64| {
            let mut release = Vec::new();
            let all = cache.releasable + cache.others;
            // Outside of pools there is one call for both.
            let own = if arena.is_some() { cache.releasable } else { all };
            if own > 0 && outside(own).min(pool(own)) >= after {
                release.push(Help::ReleaseCache { bytes: own });
            }
            if arena.is_none() || cache.others == 0 {
                return release;
            }
            let others_do = outside(cache.others).min(pool(0)) >= after;
            if others_do || release.is_empty() && outside(all).min(pool(cache.releasable)) >= after {
                release.push(Help::ReleasePools { bytes: all });
            }
            release
        };
        let mut helps = releases(&cache, after);
        // What was waited for, and what was given up, is not to be had by waiting; and what is beyond everything not at all.
        if helps.is_empty() && (self.capturing() || !self.release_on_oom) && !self.is_beyond_all(request) {
            let later = self.survey_later(request, sent_to);
            let its = (request.arena == COMMON).then(|| self.missing_later(request));
            // What could be taken now is not missing for want of time.
            let will_do = outside(0) < missing && its.is_some_and(|its| outside(0) >= its.beside_all);
            if later.largest >= request.size || will_do {
                let capturing = self.capturing();
                helps.push(Help::Wait { capturing });
            } else {
                helps = releases(&later, its.map_or(whole, |its| its.after_release));
            }
        }
        let release = |help: &Help| matches!(help, Help::ReleaseCache { .. } | Help::ReleasePools { .. });
        if self.capturing() && helps.iter().any(release) {
            helps = vec![Help::EndCapture];
        }
        // What is beyond everything was refused with the cache as it is, which a request that is not would have given up; what its pool has no
        // room for was, with that of others.
        let makes_room = self.release_on_oom && !self.capturing();
        let own = if makes_room && self.is_beyond_all(request) {
            cache.releasable
        } else {
            0
        };
        let given_up = own + if makes_room { cache.gives_way } else { 0 };
        if let Some(budget) = pool_budget.filter(|_| pool(0) < needed && outside(given_up) >= needed) {
            helps.push(Help::RaisePoolBudget {
                bytes: (pool_reserved + needed).saturating_sub(budget),
            });
        }
        let joins = self.sizes.mode == SegmentMode::Virtual && !self.capturing();
        if joins && request.class == Class::Chunked && cache.joinable >= request.size {
            helps.push(Help::JoinHoles { bytes: cache.joinable });
        }
        let raise = |own: u64, given_up: u64, needed: u64| {
            let device = device_free.saturating_add(given_up).min(pool(own));
            let lacks = outside(given_up) < needed && device >= needed;
            let budget = budget.filter(|_| lacks)?;
            Some((reserved - given_up + needed).saturating_sub(budget))
        };
        let beyond = (given_up > 0).then(|| raise(own, given_up, after)).flatten();
        if let Some(bytes) = raise(0, 0, missing).into_iter().chain(beyond).min() {
            helps.push(Help::RaiseBudget { bytes });
        }
        if let (Some(of_pool), Some(budget)) = (pool_budget, budget)
            && pool(own) < needed
            && left(Some(budget), reserved, given_up) < needed
            && device_free.saturating_add(given_up) >= needed
        {
            helps.push(Help::RaiseBudgets {
                pool: (pool_reserved + needed).saturating_sub(of_pool),
                all: (reserved - given_up + needed).saturating_sub(budget),
            });
        }
        let room = outside(given_up).min(pool(own)) / self.sizes.granularity * self.sizes.granularity;
        let largest = cache.largest.max(room);
        if largest < request.requested && self.is_of_class(request, largest) {
            helps.push(Help::SmallerBy {
                bytes: request.requested - largest,
            });
        }
        if helps.is_empty() {
            helps.push(Help::Exhausted);
        }
        helps
    }

    /// Free bytes right before a place that a release leaves there: those that are no whole chunks.
    fn kept_before(&self, place: Place, request: &Request) -> u64 {
        let Some(segment) = self.segments.get(place.segment) else {
            return 0;
        };
        let before = match segment.holes.get(&place.addr) {
            Some(hole) => self.blocks[*hole].prev,
            None => segment.last,
        };
        match self.free_bytes_of(before, request.stream) {
            0 => 0,
            free => free - self.whole_chunks(self.blocks[before].key(before)),
        }
    }

    /// Whether nothing but its size keeps a free block from a request: one that may not be split is kept from smaller ones.
    fn may_serve(&self, size: u64, block: u64) -> bool {
        block < size || self.sizes.takes(size, block)
    }

    /// Whether a smaller request would look for blocks of the same sort, and of no more bytes than it asks for.
    fn is_of_class(&self, request: &Request, smaller: u64) -> bool {
        if smaller == 0 {
            return false;
        }
        let rounded = match request.arena {
            COMMON => self.sizes.round(smaller),
            _ => self.sizes.round_plain(smaller),
        };
        rounded.is_ok_and(|(size, class)| size <= smaller && class == request.class)
    }

    /// By what is free alone, and without a look at each small block: some programs ask for less and less until they are not refused, and
    /// hold very many.
    fn survey(&self, request: &Request, sent_to: u16) -> Cache {
        let mut cache = Cache::default();
        let gives_way = |arena: u16| self.gives_way(arena, request, sent_to);
        let any = self.streams.line(request.stream).any;
        for at in self.streams.indices() {
            let line = self.streams.line(at);
            let mine = line.arena == request.arena;
            // What others may still use is none that the request could have had.
            let may_have = at == request.stream || at == any;
            let mut chunks = 0;
            for (class, index) in line.free.iter().enumerate() {
                cache.free += index.bytes();
                index.each_from(self.sizes.granularity, |key| chunks += self.whole_chunks(key));
                if may_have && class == request.class as usize {
                    cache.largest = cache.largest.max(self.largest_for(request.size, index));
                }
            }
            cache.joinable += chunks;
            if self.arenas.may_shrink(line.arena) {
                cache.release(chunks, mine, gives_way(line.arena));
            }
        }
        for (_, segment) in self.segments.iter().filter(|(_, segment)| self.is_idle(segment)) {
            let arena = segment.arena;
            cache.release(segment.size, arena == request.arena, gives_way(arena));
        }
        cache
    }

    /// Whether what an arena cached goes back for a request.
    fn gives_way(&self, arena: u16, request: &Request, sent_to: u16) -> bool {
        arena != request.arena && (arena == sent_to || self.arenas.gives_way(arena, sent_to))
    }

    /// The largest free block of an index that a request may have, or that is only too small for it.
    fn largest_for(&self, size: u64, index: &FreeIndex) -> u64 {
        let (mut largest, _) = index.largest_and_count();
        if !self.may_serve(size, largest) {
            largest = 0;
            index.each(|key| {
                if self.may_serve(size, key.size) {
                    largest = largest.max(key.size);
                }
            });
        }
        largest
    }

    /// Bytes of whole chunks in a free block.
    fn whole_chunks(&self, key: Key) -> u64 {
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
