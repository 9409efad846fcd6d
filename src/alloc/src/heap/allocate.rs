//! Best fit, split, and what is tried when nothing fits.

use gpumem_channel::{BlockState, PoolId, StringId};

use super::arena::COMMON;
use super::block::NIL;
use super::{Grant, Heap};
use crate::error::Error;
use crate::free::Key;
use crate::size::{Class, pool_of};
use crate::stream::Stream;
use crate::tag::Tag;

/// A request after rounding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) requested: u64,
    pub(super) size: u64,
    pub(super) class: Class,
    pub(super) pool: PoolId,
    pub(super) stream: u16,
    pub(super) arena: u16,
    pub(super) tag: StringId,
}

impl Request {
    /// A request for everybody's memory.
    #[inline(always)]
    fn common(requested: u64, (size, class): (u64, Class), stream: u16, tag: StringId) -> Request {
        Request {
            requested,
            size,
            class,
            pool: pool_of(size),
            stream,
            arena: COMMON,
            tag,
        }
    }
}

impl Heap {
    /// Hands out a block of at least `requested` bytes (not 0) for use on a stream.
    pub(crate) fn allocate(&mut self, requested: u64, stream: Stream, tag: Tag) -> Result<Grant, Error> {
        let (size, class) = self.sizes.round(requested)?;
        let stream = self.streams.index(stream)?;
        let tag = self.string_of(tag);
        let request = Request::common(requested, (size, class), stream, tag);
        if self.layouts.remembers(size) {
            return self.allocate_as_before(&request);
        }
        self.allocate_anew(&request)
    }

    /// The same without a look at what went before.
    pub(super) fn allocate_anew(&mut self, request: &Request) -> Result<Grant, Error> {
        let size = request.size;
        match self.streams.quick(request.stream, size).take(size, &self.blocks) {
            Some(b) => Ok(self.hand_out_quick(b, request)),
            None => self.allocate_other(request),
        }
    }

    /// [`allocate`](Heap::allocate) where a block was set aside for the size, or nothing. A path of its own, so that what it
    /// returns stays in registers.
    #[inline(always)]
    pub(crate) fn allocate_quick(&mut self, requested: u64, stream: Stream, tag: Tag) -> Option<Grant> {
        let (size, class) = self.sizes.round_quick(requested)?;
        let stream = self.streams.known(stream)?;
        let tag = self.known_string(tag)?;
        if self.layouts.remembers(size) {
            return None;
        }
        let b = self.streams.quick(stream, size).take(size, &self.blocks)?;
        let request = Request::common(requested, (size, class), stream, tag);
        Some(self.hand_out_quick(b, &request))
    }

    /// No block of this size is set aside: best fit, after the blocks that are set aside have joined their neighbours, unless
    /// there is one of exactly this size.
    fn allocate_other(&mut self, request: &Request) -> Result<Grant, Error> {
        let mut best = self.fit(request);
        if best.is_none_or(|key| key.size != request.size) && self.flush_stream(request.stream, request.size) {
            best = self.fit(request);
        }
        match best {
            Some(key) => Ok(self.hand_out(key, request)),
            None => self.allocate_slow(request),
        }
    }

    /// The best block that the request's stream may have at once: of its own, or nobody's.
    #[inline]
    pub(super) fn fit(&self, request: &Request) -> Option<Key> {
        let class = request.class as usize;
        let line = self.streams.line(request.stream);
        let own = line.free[class].best_fit(request.size);
        let any = &self.streams.line(line.any).free[class];
        let best = if any.is_empty() || own.is_some_and(|key| key.size == request.size) {
            own
        } else {
            own.into_iter().chain(any.best_fit(request.size)).min()
        };
        match best {
            // Where the best is too large, all are.
            Some(key) if !self.sizes.takes(request.size, key.size) => None,
            best => best,
        }
    }

    /// Hands out a block of a pool, or of everybody's memory if the pool has no more and may have of that.
    #[inline]
    pub(crate) fn allocate_in(&mut self, arena: u16, requested: u64, stream: Stream, tag: Tag) -> Result<Grant, Error> {
        match arena {
            COMMON => self.allocate(requested, stream, tag),
            pool => self.allocate_in_pool(pool, requested, stream, tag),
        }
    }

    #[inline(never)]
    fn allocate_in_pool(&mut self, arena: u16, requested: u64, stream: Stream, tag: Tag) -> Result<Grant, Error> {
        let (size, class) = self.sizes.round_plain(requested)?;
        let request = Request {
            requested,
            size,
            class,
            pool: pool_of(size),
            stream: self.streams.index_in(arena, stream)?,
            arena,
            tag: self.string_of(tag),
        };
        let grant = match self.streams.quick(request.stream, size).take(size, &self.blocks) {
            Some(b) => self.hand_out_quick(b, &request),
            None => self.allocate_other(&request)?,
        };
        self.pool_granted(grant.block);
        Ok(grant)
    }

    /// What is there: the best block that fits.
    pub(super) fn find(&mut self, request: &Request) -> Option<Grant> {
        let key = self.fit(request)?;
        Some(self.hand_out(key, request))
    }

    /// Turns a block that was set aside for its size into an allocated one.
    #[inline(always)]
    pub(super) fn hand_out_quick(&mut self, b: u32, request: &Request) -> Grant {
        let block = &mut self.blocks[b];
        if block.stitched != NIL {
            return self.hand_out_set_aside(b, request);
        }
        block.state = BlockState::Allocated;
        block.requested = request.requested;
        block.pool = request.pool;
        block.freed_at = 0;
        block.tag = request.tag;
        let (addr, size) = (block.addr, block.size);
        let split = std::mem::take(&mut block.split_counted).then_some(block.class.pool());
        if let Some(pool) = split {
            self.ledger.split_removed(pool, size);
        }
        self.ledger.allocated(request.pool, size, request.requested);
        self.tell_allocated(b, split);
        Grant { block: b, addr, size }
    }

    /// Turns a free block into an allocated one, leaving what is worth it in the cache.
    #[inline]
    pub(super) fn hand_out(&mut self, key: Key, request: &Request) -> Grant {
        let b = key.block;
        let split = self.unshelve(b);
        let rest = key.size - request.size;
        let rest = self
            .sizes
            .splits(request.class, request.size, rest)
            .then(|| self.cut(b, request.size));
        let block = &mut self.blocks[b];
        block.state = BlockState::Allocated;
        block.requested = request.requested;
        block.pool = request.pool;
        block.stream = request.stream;
        block.freed_at = 0;
        block.tag = request.tag;
        let grant = Grant {
            block: b,
            addr: block.addr,
            size: block.size,
        };
        self.ledger.allocated(request.pool, grant.size, request.requested);
        match rest {
            None => self.tell_allocated(b, split),
            Some(rest) => {
                self.shelve(rest);
                self.tell_cut(b, rest);
            }
        }
        grant
    }
}
