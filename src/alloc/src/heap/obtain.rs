//! What is tried when nothing fits, in which order.

use super::allocate::Request;
use super::arena::COMMON;
use super::foreign::{FAR, NEAR};
use super::grow::fineness::{FEW, is_cheap};
use super::stitch::runs::Look;
use super::{Grant, Heap};
use crate::config::SegmentMode;
use crate::error::Error;
use crate::free::Key;
use crate::size::{Class, FINE, SLACK, TOO_MUCH, pool_of};

impl Heap {
    /// Nothing fits on the request's stream: wait lists, other streams, the driver, and at last the cache itself. What a pool has no room
    /// for may overflow to everybody's memory before its cache is given up.
    ///
    /// Where a request can be suspended this begins anew after every long driver call.
    #[cold]
    pub(super) fn allocate_slow(&mut self, request: &Request) -> Result<Grant, Error> {
        let result = self.try_everything(request);
        self.note_suspended(request);
        if !self.is_to_go_on() {
            self.leave_rest(request);
        }
        result
    }

    fn try_everything(&mut self, request: &Request) -> Result<Grant, Error> {
        if self.is_beyond_all(request) {
            // The report is about all that is free.
            self.drain_all();
            return self.fail(request);
        }
        self.poll_for(request)?;
        self.drain_for(request);
        // A capture may have begun since the device was waited for.
        if !self.is_settled() || self.capturing() {
            if let Some(grant) = self.obtain(request)? {
                return Ok(grant);
            }
            if let Ok(Some(shared)) = self.shared(request)
                && let Some(grant) = self.obtain(&shared)?
            {
                self.pool_overflowed(request.arena);
                return Ok(grant);
            }
            if !self.release_on_oom || self.capturing() {
                return self.fail_unless_streams_lack(request);
            }
            self.settle(request)?;
            self.note_settled();
        }
        // What can only overflow has nothing of its own pool given up for it, while there are others that matter less.
        if !self.is_beyond(request.size, request.class, request.arena)
            && let Some(grant) = self.obtain_after_making_room(request, request.arena)?
        {
            return Ok(self.granted_at_last(grant, request));
        }
        if let Ok(Some(shared)) = self.shared(request)
            && let Some(grant) = self.obtain_after_making_room(&shared, request.arena)?
        {
            self.pool_overflowed(request.arena);
            return Ok(self.granted_at_last(grant, request));
        }
        self.fail_unless_streams_lack(request)
    }

    /// A request was served once room was made.
    fn granted_at_last(&mut self, grant: Grant, request: &Request) -> Grant {
        self.ledger.retried();
        self.tell_retry(request);
        self.tell_figures();
        grant
    }

    /// Nothing helped; but where there was no place for its stream outside of its pool, that is what is told: there may be one when streams
    /// that have ended are forgotten.
    fn fail_unless_streams_lack(&mut self, request: &Request) -> Result<Grant, Error> {
        self.shared(request)?;
        self.fail(request)
    }

    /// Whether a request is for more than there can be while the limits are what they are and the program holds what it holds, in its pool
    /// and outside: no cache is emptied for it, and no stream waited for.
    pub(super) fn is_beyond_all(&self, request: &Request) -> bool {
        let outside = match self.overflows(request.arena) {
            true => self.sizes.round(request.requested).ok(),
            false => None,
        };
        self.is_beyond(request.size, request.class, request.arena)
            && outside.is_none_or(|(size, class)| self.is_beyond(size, class, COMMON))
    }

    fn is_beyond(&self, size: u64, class: Class, arena: u16) -> bool {
        let unit = match class {
            Class::Chunked | Class::Fine => self.sizes.granularity,
            Class::Small | Class::Large => 1,
        };
        let (_, least) = self.sizes.growth(class, size);
        let least = least.next_multiple_of(unit);
        // What is reserved beyond a limit that was lowered serves requests, too; what is held serves none.
        let beyond = |limit: Option<u64>, reserved: u64, held: u64| {
            let all = limit.map_or(u64::MAX, |limit| limit.max(reserved));
            least > all || size > all.saturating_sub(held)
        };
        // Without what lanes count: they go on counting meanwhile.
        let (reserved, held) = (self.ledger.reserved(), self.ledger.allocated_bytes());
        beyond(Some(self.driver.info().total), reserved, held)
            || beyond(self.budget, reserved, held)
            || self.arenas.get(arena).is_some_and(|pool| {
                let (reserved, held) = (&pool.figures.reserved_bytes, &pool.figures.allocated_bytes);
                beyond(pool.config.budget, reserved.current, held.current)
            })
    }

    /// What a request of a pool is outside of it, if it may go there. Not if its stream has ended while it was suspended: whoever has the
    /// name now is another stream or none, and a line of that name would have the driver asked about it.
    fn shared(&mut self, request: &Request) -> Result<Option<Request>, Error> {
        if !self.may_go_outside(request) {
            return Ok(None);
        }
        let stream = self.streams.index(self.streams.name(request.stream))?;
        self.outside(request, stream).map(Some)
    }

    /// The same where its stream has a place outside already: what does not go there takes none.
    fn shared_if_known(&mut self, request: &Request) -> Option<Request> {
        if !self.may_go_outside(request) {
            return None;
        }
        let stream = self.streams.known_in(COMMON, self.streams.name(request.stream))?;
        self.outside(request, stream).ok()
    }

    fn may_go_outside(&self, request: &Request) -> bool {
        self.overflows(request.arena) && !self.streams.line(request.stream).is_retired()
    }

    fn outside(&self, request: &Request, stream: u16) -> Result<Request, Error> {
        let (size, class) = self.sizes.round(request.requested)?;
        let size = self.block_size(stream, size, class);
        Ok(Request {
            size,
            class,
            pool: pool_of(size),
            stream,
            arena: COMMON,
            ..*request
        })
    }

    /// What is there, or new memory.
    pub(super) fn obtain(&mut self, request: &Request) -> Result<Option<Grant>, Error> {
        if self.stitches(request) {
            return self.obtain_stitched(request);
        }
        if let Some(key) = self.fit_anywhere(request)? {
            return Ok(Some(self.hand_out(key, request)));
        }
        if self.collect_idle(request)?
            && let Some(key) = self.fit_anywhere(request)?
        {
            return Ok(Some(self.hand_out(key, request)));
        }
        if self.grow(request)? {
            return Ok(self.find(request));
        }
        Ok(None)
    }

    fn stitches(&self, request: &Request) -> bool {
        self.sizes.mode == SegmentMode::Stitched && request.arena == COMMON
    }

    /// The same once the device was waited for: what matters less than the pool that the request was sent to goes back to the driver until it
    /// fits.
    fn obtain_after_making_room(&mut self, request: &Request, sent_to: u16) -> Result<Option<Grant>, Error> {
        let found = match self.stitches(request) || self.has_made_room() {
            true => self.obtain(request)?,
            false => self.fit_anywhere(request)?.map(|key| self.hand_out(key, request)),
        };
        if found.is_some() {
            return Ok(found);
        }
        loop {
            let more = self.free_up(request, sent_to)?;
            if let Some(grant) = self.obtain(request)? {
                return Ok(Some(grant));
            }
            if !more {
                return Ok(None);
            }
        }
    }

    /// Nothing helped.
    pub(super) fn fail(&mut self, request: &Request) -> Result<Grant, Error> {
        self.let_others_finish(request)?;
        let memory = self.device_memory(request)?;
        self.ledger.ran_out();
        self.pool_ran_out(request.arena);
        let mut report = self.explain(request, request.arena, memory);
        if let Some(shared) = self.shared_if_known(request) {
            report.also(self.explain(&shared, request.arena, memory));
        }
        self.tell_failure(request, report.device_free);
        self.tell_figures();
        self.tell_advice(request, &report);
        Err(Error::OutOfMemory(Box::new(report)))
    }

    /// The same where memory is stitched: everything that needs no new memory comes first, and then no more than is missing.
    fn obtain_stitched(&mut self, request: &Request) -> Result<Option<Grant>, Error> {
        if let Some(grant) = self.find(request) {
            return Ok(Some(grant));
        }
        if (self.reclaim(request)? | self.absorb(request, NEAR))
            && let Some(grant) = self.find(request)
        {
            return Ok(Some(grant));
        }
        self.leave_room(request)?;
        if request.class == Class::Fine {
            return self.obtain_fine(request);
        }
        if let Some(grant) = self.obtain_among_small(request) {
            return Ok(Some(grant));
        }
        let plain = self.best_place(request).map_or(request.size, |place| place.missing);
        let first = self.ledger.reserved() + plain > self.target(request) || self.is_others(plain);
        if first {
            if let Some(grant) = self.obtain_from_pieces(request, plain)? {
                return Ok(Some(grant));
            }
            self.give_back_small(request, plain)?;
        }
        if self.grow(request)? || self.absorb(request, FAR) {
            return Ok(self.find(request));
        }
        // What the program once held may be more than there is now: of the budget, or beside others on the device.
        if !first && let Some(grant) = self.obtain_from_pieces(request, plain)? {
            return Ok(Some(grant));
        }
        // What is waited for and goes back otherwise costs more than a look at all that is free.
        match self.has_very_many_free(request) {
            true => self.obtain_by(Look::All, request, plain),
            false => Ok(None),
        }
    }

    /// What lies side by side in a view, or free pieces that are stitched, with less new memory than the `plain` bytes that it would take without.
    fn obtain_from_pieces(&mut self, request: &Request, plain: u64) -> Result<Option<Grant>, Error> {
        if self.has_very_many_free(request)
            && let Some(grant) = self.obtain_from_few(request)?
        {
            return Ok(Some(grant));
        }
        self.obtain_by(Look::Most, request, plain)
    }

    /// The same by one look.
    fn obtain_by(&mut self, look: Look, request: &Request, plain: u64) -> Result<Option<Grant>, Error> {
        if let Some(grant) = self.fit_in_views(request, look) {
            return Ok(Some(grant));
        }
        self.ask_about_views(request)?;
        let mut left = self.budget_left();
        while let Some(plan) = self.plan(request, left, look).filter(|plan| plan.missing < plain) {
            if self.give_back_small(request, plan.missing)? {
                continue;
            }
            if let Some(grant) = self.stitch(plan, request)? {
                return Ok(Some(grant));
            }
            if left == 0 {
                break;
            }
            // The device has less than the budget leaves: what needs the least.
            left = 0;
        }
        // New memory that it took before the mapping failed may do.
        Ok(self.find(request))
    }

    /// The same of few of the free blocks, without new memory.
    fn obtain_from_few(&mut self, request: &Request) -> Result<Option<Grant>, Error> {
        if let Some(grant) = self.fit_in_views(request, Look::Few) {
            return Ok(Some(grant));
        }
        self.ask_about_views(request)?;
        match self.plan_of_few(request, self.budget_left()) {
            Some(plan) => Ok(self.stitch(plan, request)?),
            None => Ok(None),
        }
    }

    /// For a large request that nothing fits: a place in the memory for small blocks, if most of that is idle. A program whose small blocks
    /// have grown large would leave it so for ever.
    fn obtain_among_small(&mut self, request: &Request) -> Option<Grant> {
        let small = request.among_small();
        let line = self.streams.line(request.stream);
        let free = [line, self.streams.line(line.any)].map(|line| line.free[small.class as usize].bytes());
        let idle = 2 * (free[0] + free[1]) > self.ledger.reserved_small();
        if !idle || !is_cheap(self.frees, self.ledger.device_allocs()) {
            return None;
        }
        self.find(&small)
    }

    /// Before `missing` bytes of new memory are taken for a large request although much more is reserved than the program ever held: as many
    /// whole chunks of the memory for small blocks go back, if there are. Whether some went.
    fn give_back_small(&mut self, request: &Request, missing: u64) -> Result<bool, Error> {
        let peak = self.requested_peak(request.requested);
        let too_much = (peak + peak / TOO_MUCH).max(FEW);
        // This is seldom, so that it pays sooner than to map fine chunks always.
        let pays = is_cheap(2 * self.frees, self.ledger.device_allocs());
        if missing == 0 || self.ledger.reserved() + missing <= too_much || !pays || self.capturing() {
            return Ok(false);
        }
        let lines = [request.stream, self.streams.line(request.stream).any];
        let largest = lines.map(|line| self.streams.line(line).free[Class::Fine as usize].largest_and_count().0);
        if largest[0].max(largest[1]) < self.sizes.granularity {
            return Ok(false);
        }
        self.learn_for(request, &lines[..1])?;
        Ok(self.give_back_for(request, self.spare_chunked(missing, |class| class == Class::Fine))?)
    }

    /// For a small request that nothing fits: new memory, or rather than too much of it a corner among the large ones.
    fn obtain_fine(&mut self, request: &Request) -> Result<Option<Grant>, Error> {
        let coarse = request.among_large();
        if self.is_full(request)
            && let Some(key) = self.fit(&coarse)
        {
            return Ok(Some(self.hand_out(key, &coarse)));
        }
        if self.grow(request)? || self.absorb(request, FAR) {
            return Ok(self.find(request));
        }
        Ok(self.fit(&coarse).map(|key| self.hand_out(key, &coarse)))
    }

    /// How much memory may be taken before a request is rather stitched from what there is: a little more than what the program
    /// is expected to hold. It saves most of the mapping.
    pub(super) fn target(&mut self, request: &Request) -> u64 {
        let peak = self.expected_peak(request.requested);
        peak + peak / SLACK
    }

    /// The same for small requests. A small block among the large ones keeps its chunk out of larger ones, and is in the way of what went
    /// there before: so they may have some memory of their own, whatever else is reserved.
    fn target_of_fine(&mut self, request: &Request) -> u64 {
        let peak = self.expected_peak(request.requested);
        if self.ledger.reserved_small() + self.sizes.granularity <= peak / FINE || self.may_spread(request, peak) {
            return u64::MAX;
        }
        peak + peak / SLACK
    }

    /// Whether a small request is better placed among the large blocks than in more memory for small ones.
    pub(super) fn is_full(&mut self, request: &Request) -> bool {
        let more = self.sizes.granularity;
        self.ledger.reserved() + more > self.target_of_fine(request) || self.is_others(more)
    }

    fn fit_anywhere(&mut self, request: &Request) -> Result<Option<Key>, Error> {
        if let Some(key) = self.fit(request) {
            return Ok(Some(key));
        }
        if self.reclaim(request)? | self.absorb(request, FAR) {
            return Ok(self.fit(request));
        }
        Ok(None)
    }
}

#[cfg(test)]
#[path = "obtain_tests.rs"]
mod tests;
