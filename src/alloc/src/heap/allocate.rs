//! Best fit, split, and what is tried when nothing fits.

use gpumem_channel::{BlockState, EventKind, StringId};

use super::{Grant, Heap};
use crate::error::Error;
use crate::free::Key;
use crate::size::Class;
use crate::stream::Stream;
use crate::tag::Tag;

/// A request after rounding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) requested: u64,
    pub(super) size: u64,
    pub(super) class: Class,
    pub(super) stream: u16,
    pub(super) tag: StringId,
}

impl Heap {
    /// Hands out a block of at least `requested` bytes (not 0) for use on a stream.
    #[inline]
    pub(crate) fn allocate(&mut self, requested: u64, stream: Stream, tag: Tag) -> Result<Grant, Error> {
        let (size, class) = self.sizes.round(requested)?;
        let stream = self.streams.index(stream)?;
        let tag = self.string_of(tag);
        let request = Request {
            requested,
            size,
            class,
            stream,
            tag,
        };
        match self.fit(&request) {
            Some(key) => Ok(self.hand_out(key, &request)),
            None => self.allocate_slow(&request),
        }
    }

    #[inline]
    fn fit(&self, request: &Request) -> Option<Key> {
        self.streams.line(request.stream).free[request.class as usize].best_fit(request.size)
    }

    /// Nothing fits on the request's stream: wait lists, other streams, the driver, and at last the cache itself.
    #[cold]
    fn allocate_slow(&mut self, request: &Request) -> Result<Grant, Error> {
        self.poll_pending();
        if let Some(key) = self.fit_anywhere(request) {
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
        self.ledger.ran_out();
        let report = self.explain(request);
        self.tell(EventKind::OutOfMemory, request, report.device_free.unwrap_or(0));
        self.tell_figures();
        Err(Error::OutOfMemory(Box::new(report)))
    }

    fn fit_anywhere(&mut self, request: &Request) -> Option<Key> {
        if let Some(key) = self.fit(request) {
            return Some(key);
        }
        if let Some(key) = self.foreign_fit(request) {
            return Some(key);
        }
        if self.bring_home() { self.fit(request) } else { None }
    }

    fn fit_after_making_room(&mut self, request: &Request) -> Result<Option<Key>, Error> {
        self.settle()?;
        if let Some(key) = self.fit_anywhere(request) {
            return Ok(Some(key));
        }
        // A segment that cannot be freed stays in the cache; whether the others make enough room shows at once.
        let _ = self.release_free();
        self.grow(request)?;
        Ok(self.fit(request))
    }

    /// Turns a free block into an allocated one, leaving what is worth it in the cache.
    #[inline]
    fn hand_out(&mut self, key: Key, request: &Request) -> Grant {
        let b = key.block;
        let split = self.unshelve(b);
        let rest = key.size - request.size;
        let rest = self
            .sizes
            .splits(request.class, rest)
            .then(|| self.cut(b, request.size));
        let block = &mut self.blocks[b];
        block.state = BlockState::Allocated;
        block.requested = request.requested;
        block.stream = request.stream;
        block.freed_at = 0;
        block.tag = request.tag;
        let grant = Grant {
            block: b,
            addr: block.addr,
            size: block.size,
        };
        self.ledger.allocated(request.class, grant.size, request.requested);
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
