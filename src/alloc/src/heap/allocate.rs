//! Best fit, split, and what is tried when nothing fits.

use gpumem_channel::{BlockState, EventKind, PoolId, StringId};

use super::block::NIL;
use super::streams::ANY;
use super::{Grant, Heap};
use crate::config::SegmentMode;
use crate::error::Error;
use crate::free::Key;
use crate::size::{Class, SLACK, pool_of};
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
    pub(super) tag: StringId,
}

impl Heap {
    /// Hands out a block of at least `requested` bytes (not 0) for use on a stream.
    pub(crate) fn allocate(&mut self, requested: u64, stream: Stream, tag: Tag) -> Result<Grant, Error> {
        let (size, class) = self.sizes.round(requested)?;
        let stream = self.streams.index(stream)?;
        let tag = self.string_of(tag);
        let request = Request {
            requested,
            size,
            class,
            pool: pool_of(size),
            stream,
            tag,
        };
        if let Some(b) = self.streams.quick(stream, size).take(size, &self.blocks) {
            return Ok(self.hand_out_quick(b, &request));
        }
        self.allocate_other(&request)
    }

    /// [`allocate`](Heap::allocate) where a block was set aside for the size, or nothing. A path of its own, so that what it
    /// returns stays in registers.
    #[inline(always)]
    pub(crate) fn allocate_quick(&mut self, requested: u64, stream: Stream, tag: Tag) -> Option<Grant> {
        let (size, class) = self.sizes.round_quick(requested)?;
        let stream = self.streams.known(stream)?;
        let tag = self.known_string(tag)?;
        let b = self.streams.quick(stream, size).take(size, &self.blocks)?;
        let request = Request {
            requested,
            size,
            class,
            pool: pool_of(size),
            stream,
            tag,
        };
        Some(self.hand_out_quick(b, &request))
    }

    /// No block of this size is set aside: best fit, after the blocks that are set aside have joined their neighbours, unless
    /// there is one of exactly this size.
    fn allocate_other(&mut self, request: &Request) -> Result<Grant, Error> {
        if let Some(key) = self.fit(request).filter(|key| key.size == request.size) {
            return Ok(self.hand_out(key, request));
        }
        self.flush_stream(request.stream, request.size);
        match self.find(request) {
            Some(grant) => Ok(grant),
            None => self.allocate_slow(request),
        }
    }

    /// The best block that the request's stream may have at once: of its own, or nobody's.
    #[inline]
    pub(super) fn fit(&self, request: &Request) -> Option<Key> {
        let class = request.class as usize;
        let own = self.streams.line(request.stream).free[class].best_fit(request.size);
        let any = &self.streams.line(ANY).free[class];
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

    /// Nothing fits on the request's stream: wait lists, other streams, the driver, and at last the cache itself.
    #[cold]
    fn allocate_slow(&mut self, request: &Request) -> Result<Grant, Error> {
        self.poll_pending();
        self.flush();
        if self.sizes.mode == SegmentMode::Stitched {
            return self.allocate_stitched(request);
        }
        if let Some(key) = self.fit_anywhere(request) {
            return Ok(self.hand_out(key, request));
        }
        if self.collect_idle()?
            && let Some(key) = self.fit_anywhere(request)
        {
            return Ok(self.hand_out(key, request));
        }
        if self.grow(request)?
            && let Some(key) = self.fit(request)
        {
            return Ok(self.hand_out(key, request));
        }
        if self.release_on_oom
            && let Some(key) = self.fit_after_making_room(request)?
        {
            self.ledger.retried();
            self.tell(EventKind::Retry, request, 0);
            return Ok(self.hand_out(key, request));
        }
        self.fail(request)
    }

    /// Nothing helped.
    fn fail(&mut self, request: &Request) -> Result<Grant, Error> {
        self.ledger.ran_out();
        let report = self.explain(request);
        self.tell(EventKind::OutOfMemory, request, report.device_free.unwrap_or(0));
        self.tell_figures();
        Err(Error::OutOfMemory(Box::new(report)))
    }

    /// The same where memory is stitched: everything that needs no new memory comes first, and then no more than is missing.
    fn allocate_stitched(&mut self, request: &Request) -> Result<Grant, Error> {
        if let Some(grant) = self.obtain(request)? {
            return Ok(grant);
        }
        if self.release_on_oom {
            self.settle()?;
            let mut grant = self.obtain(request)?;
            if grant.is_none() {
                // What cannot be given back stays in the cache; whether the rest makes enough room shows at once.
                let _ = self.release_free();
                grant = self.obtain(request)?;
            }
            if let Some(grant) = grant {
                self.ledger.retried();
                self.tell(EventKind::Retry, request, 0);
                self.tell_figures();
                return Ok(grant);
            }
        }
        self.fail(request)
    }

    fn obtain(&mut self, request: &Request) -> Result<Option<Grant>, Error> {
        if let Some(grant) = self.find(request) {
            return Ok(Some(grant));
        }
        if (self.reclaim(request.stream) | self.absorb(request))
            && let Some(grant) = self.find(request)
        {
            return Ok(Some(grant));
        }
        if request.class == Class::Fine {
            return self.obtain_fine(request);
        }
        let plain = self.best_place(request).map_or(request.size, |place| place.missing);
        if self.ledger.reserved() + plain > self.target(request) {
            if let Some(grant) = self.fit_in_views(request) {
                return Ok(Some(grant));
            }
            if let Some(plan) = self.plan(request).filter(|plan| plan.missing < plain)
                && let Some(grant) = self.stitch(plan, request)?
            {
                return Ok(Some(grant));
            }
            // New memory that it took before the mapping failed may do.
            if let Some(grant) = self.find(request) {
                return Ok(Some(grant));
            }
        }
        if self.grow(request)? {
            return Ok(self.find(request));
        }
        Ok(None)
    }

    /// For a small request that nothing fits: new memory, or rather than too much of it a corner among the large ones.
    fn obtain_fine(&mut self, request: &Request) -> Result<Option<Grant>, Error> {
        let coarse = Request {
            class: Class::Chunked,
            ..*request
        };
        if self.ledger.reserved() + self.sizes.granularity > self.target(request)
            && let Some(key) = self.fit(&coarse)
        {
            return Ok(Some(self.hand_out(key, &coarse)));
        }
        if self.grow(request)? {
            return Ok(self.find(request));
        }
        Ok(self.fit(&coarse).map(|key| self.hand_out(key, &coarse)))
    }

    /// How much memory may be taken before a request is rather stitched from what there is: a little more than what the program
    /// ever held. It saves most of the mapping.
    pub(super) fn target(&self, request: &Request) -> u64 {
        let peak = self.ledger.requested_peak(request.requested);
        peak + peak / SLACK
    }

    /// What is there: the best block that fits.
    fn find(&mut self, request: &Request) -> Option<Grant> {
        let key = self.fit(request)?;
        Some(self.hand_out(key, request))
    }

    fn fit_anywhere(&mut self, request: &Request) -> Option<Key> {
        if let Some(key) = self.fit(request) {
            return Some(key);
        }
        if self.reclaim(request.stream) | self.absorb(request) {
            return self.fit(request);
        }
        None
    }

    fn fit_after_making_room(&mut self, request: &Request) -> Result<Option<Key>, Error> {
        self.settle()?;
        if let Some(key) = self.fit_anywhere(request) {
            return Ok(Some(key));
        }
        // A segment that cannot be freed stays in the cache; whether the others make enough room shows at once.
        if self.release_oversize(request.size) && self.grow(request)? {
            return Ok(self.fit(request));
        }
        let _ = self.release_free();
        self.grow(request)?;
        Ok(self.fit(request))
    }

    /// Turns a block that was set aside for its size into an allocated one.
    #[inline(always)]
    fn hand_out_quick(&mut self, b: u32, request: &Request) -> Grant {
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
    fn hand_out(&mut self, key: Key, request: &Request) -> Grant {
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
