//! Best fit and split.

use gpumem_channel::{BlockState, PoolId, Split, StringId};

use super::arena::COMMON;
use super::block::{Block, NIL};
use super::streams::LaneOf;
use super::{Grant, Heap};
use crate::error::Error;
use crate::free::{Found, Key};
use crate::size::{Class, half, pool_of};
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
    /// The tag as the program knows it.
    pub(super) name: Tag,
}

/// A part of a free block that is about to be handed out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) block: u32,
    pub(super) addr: u64,
    pub(super) size: u64,
    /// Which pool counted the whole as an inactive split.
    split: Split,
    /// What was cut off it, and whose the whole was.
    pub(super) rest: Option<Key>,
    owner: u16,
}

impl Request {
    /// A request for everybody's memory.
    #[inline(always)]
    pub(super) fn common(
        requested: u64,
        (size, class): (u64, Class),
        stream: u16,
        (name, tag): (Tag, StringId),
    ) -> Request {
        Request {
            requested,
            size,
            class,
            pool: pool_of(size),
            stream,
            arena: COMMON,
            tag,
            name,
        }
    }

    /// The same small request among the large blocks.
    pub(super) fn among_large(&self) -> Request {
        Request {
            class: Class::Chunked,
            ..*self
        }
    }

    /// The same large request among the small blocks.
    pub(super) fn among_small(&self) -> Request {
        Request {
            class: Class::Fine,
            ..*self
        }
    }
}

impl Block {
    /// A request has it.
    #[inline(always)]
    fn hold(&mut self, request: &Request) {
        self.state = BlockState::Allocated;
        self.requested = request.requested;
        self.pool = request.pool;
        self.stream = request.stream;
        self.freed_at = 0;
        self.tag = request.tag;
    }
}

impl Heap {
    /// Hands out a block of at least `requested` bytes (not 0) for use on a stream.
    pub(crate) fn allocate(&mut self, requested: u64, stream: Stream, tag: Tag) -> Result<Grant, Error> {
        let (size, class) = self.sizes.round(requested)?;
        let stream = self.line_of(COMMON, stream)?;
        let tag = (tag, self.string_of(tag));
        let size = self.block_size(stream, size, class);
        let request = Request::common(requested, (size, class), stream, tag);
        if self.layouts.remembers(size) {
            return self.allocate_remembered(&request);
        }
        self.allocate_anew(&request)
    }

    /// The same without a look at what went before.
    pub(super) fn allocate_anew(&mut self, request: &Request) -> Result<Grant, Error> {
        match self.allocate_from_lane(request) {
            Some(grant) => Ok(grant),
            None => self.allocate_other(request),
        }
    }

    /// No block of this size is set aside: best fit, after the blocks that are set aside have joined their neighbours if nothing fits, or
    /// a large request no better than that, of whose size none was given back a moment ago either.
    fn allocate_other(&mut self, request: &Request) -> Result<Grant, Error> {
        let half = half(request.size);
        let line = self.streams.line_mut(request.stream);
        let again = line.again[half].asked(request.size).filter(|_| half == 1);
        if let Some(b) = line.take_aside_of(request.size) {
            return Ok(self.hand_out_set_aside(b, request));
        }
        if let Some((addr, b)) = again
            && let Some(grant) = self.hand_out_there(addr, b, request)
        {
            return Ok(grant);
        }
        let mut best = self.fit(request);
        if best.is_none()
            && let Some(grant) = self.allocate_corner_at_once(request)
        {
            return Ok(grant);
        }
        if best.is_none_or(|key| again.is_none() && self.may_fit_better(request, key.size)) {
            best = self.best_of_all(request);
        }
        match best {
            Some(key) => Ok(self.hand_out(key, request)),
            None => match self.allocate_corner(request) {
                Some(grant) => Ok(grant),
                None => self.allocate_slow(request),
            },
        }
    }

    /// The best block once what is set aside has joined its neighbours.
    #[inline(never)]
    pub(super) fn best_of_all(&mut self, request: &Request) -> Option<Key> {
        if request.class == Class::Fine {
            return self.best_after_drain(request);
        }
        let half = half(request.size);
        self.streams.line_mut(request.stream).again[half].next_round();
        self.drain(request.stream, half);
        self.fit(request)
    }

    /// Whether what is set aside may be a better fit for a large request than a block of `size` bytes, or would be if it were.
    #[inline(always)]
    pub(super) fn may_fit_better(&self, request: &Request, size: u64) -> bool {
        let line = self.streams.line(request.stream);
        half(request.size) == 1
            && !self.sizes.goes_low(request.class, request.size)
            && (line.again[1].waits_between(request.size, size)
                || matches!(line.lane, LaneOf::Some(lane) if self.front.may_have_between(lane, request.size, size)))
    }

    /// The best block that the request's stream may have at once: of its own, or nobody's.
    #[inline(always)]
    pub(super) fn fit(&mut self, request: &Request) -> Option<Key> {
        let low = self.sizes.goes_low(request.class, request.size);
        let line = self.streams.line_mut(request.stream);
        let (any, own) = (line.any, line.free[request.class as usize].fit(request.size, low));
        self.fit_beside(own, any, low, request)
    }

    /// The same where the best of its own is known. `any`: the line of what is nobody's. While the GPU is behind, a stream's own goes first,
    /// of which others have nothing yet.
    #[inline(always)]
    pub(super) fn fit_beside(&mut self, own: Found, any: u16, low: bool, request: &Request) -> Option<Key> {
        let takes = |key: &Key| self.sizes.takes(request.size, key.size);
        let is_enough = self.behind && own.key().as_ref().is_some_and(takes);
        let any = &mut self.streams.line_mut(any).free[request.class as usize];
        let best = if any.is_empty() || is_enough {
            own
        } else {
            any.better(own, request.size, low)
        };
        // Where the best is too large, all are.
        best.key().filter(|key| self.sizes.takes(request.size, key.size))
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
        let rounded = self.sizes.round_plain(requested)?;
        let line = self.line_of(arena, stream)?;
        let tag = (tag, self.string_of(tag));
        let request = Request {
            arena,
            ..Request::common(requested, rounded, line, tag)
        };
        let grant = self.allocate_other(&request)?;
        self.pool_granted(grant.block);
        Ok(grant)
    }

    /// What is there: the best block that fits.
    pub(super) fn find(&mut self, request: &Request) -> Option<Grant> {
        let key = self.fit(request)?;
        Some(self.hand_out(key, request))
    }

    /// Turns a free block into an allocated one, leaving what is worth it in the cache.
    #[inline(always)]
    pub(super) fn hand_out(&mut self, key: Key, request: &Request) -> Grant {
        let taken = self.take_out(key, request);
        match self.lane_for(taken.block, request, taken.size) {
            Some(lane) => self.lend_taken(taken, lane, request),
            None => self.hand_out_taken(taken, request),
        }
    }

    /// Lends it to a lane.
    #[inline(always)]
    pub(super) fn lend_taken(&mut self, taken: Taken, lane: u8, request: &Request) -> Grant {
        self.lend(taken.block, taken.rest.map(|rest| rest.block), lane, request)
    }

    /// The part of a free block that a request gets, allocated, in no index and not yet counted or told of.
    #[inline(always)]
    pub(super) fn take_out(&mut self, key: Key, request: &Request) -> Taken {
        self.take(key, request, true)
    }

    /// The same of a free block that may not be in its index any more.
    #[inline(always)]
    pub(super) fn take(&mut self, key: Key, request: &Request, is_in_index: bool) -> Taken {
        let left = key.size - request.size;
        let splits = self.sizes.splits(request.class, request.size, left);
        let slot = if splits { self.blocks.vacancy() } else { NIL };
        let (block, split) = match is_in_index {
            true => self.take_from_index(key.block),
            false => (&mut self.blocks[key.block], Split::NO),
        };
        let mut taken = Taken {
            block: key.block,
            addr: key.addr,
            size: key.size,
            owner: block.stream,
            split,
            rest: None,
        };
        if !splits {
            block.hold(request);
            return taken;
        }
        let rest = block.split_off(key.block, request.size, slot);
        block.hold(request);
        self.put_behind(slot, rest);
        taken.size = request.size;
        taken.rest = Some(Key {
            size: left,
            addr: key.addr + request.size,
            block: slot,
        });
        taken
    }

    /// Counts it and tells of it; the rest of the block goes back into the cache.
    #[inline(always)]
    pub(super) fn hand_out_taken(&mut self, taken: Taken, request: &Request) -> Grant {
        self.count_allocated(request, taken.size);
        match taken.rest {
            None => self.tell_allocated(taken.block, taken.split),
            Some(rest) => {
                self.put_in_index(rest, taken.owner, request.class, true);
                self.tell_taken(taken.block, &[rest.block]);
            }
        }
        Grant::by_heap(taken.block, taken.addr, taken.size)
    }
}
