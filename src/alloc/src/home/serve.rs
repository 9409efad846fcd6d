//! Blocks out of a home and back.

use std::sync::Arc;

use super::enter::{ALL_STACKS, NEVER};
use super::turn::Turn;
use super::{Home, Tenant};
use crate::device::Driver;
use crate::error::Error;
use crate::free_memory::{free_memory, may_free_memory};
use crate::heap::{Attempt, Errands, Grant, Heap, Named, Unmet, Wonder};
use crate::lane::{Apart, Held, Lent, NOT_ENTERED, Wish};
use crate::lock::Biased;
use crate::process::Uncancelled;
use crate::stream::Stream;
use crate::tag;

impl Home {
    /// [`with`](Home::with), where success makes a buffer.
    #[inline]
    pub(crate) fn lend<R>(&self, work: impl FnOnce(&mut Heap) -> Result<R, Error>) -> Result<R, Error> {
        self.enter(|tenant| {
            let lent = work(&mut tenant.heap);
            tenant.buffers += i64::from(lent.is_ok());
            lent
        })?
    }

    /// The size of blocks that lanes have for a request of so many bytes.
    #[inline(always)]
    pub(crate) fn size_of(&self, bytes: u64) -> u64 {
        self.front.size_of(bytes)
    }

    /// A block that was set aside in the stream's lane for a request of so many bytes, which comes to this [size](Home::size_of); the
    /// heap is not asked. `buffer`: it becomes one. What comes back does in registers: memory that was written in pieces and is read as
    /// a whole a moment later would be waited for.
    #[inline(never)]
    pub(crate) fn lend_quick(&self, (bytes, asked): (u64, u64), stream: Stream, buffer: bool) -> Option<Lent> {
        if !self.process.is_current() {
            return None;
        }
        let (apart, size) = self.front.look(asked, stream)?;
        match apart.is_mine() {
            true => self.lend_entered(apart, (bytes, size), stream, buffer),
            false => self.lend_as_others(apart, (bytes, size), stream, buffer),
        }
    }

    /// The same for a thread that may enter the lane.
    #[inline(never)]
    fn lend_entered(&self, apart: &Apart, request: (u64, u64), stream: Stream, buffer: bool) -> Option<Lent> {
        let by = (tag::current(), buffer);
        match self.front.allocate_by(apart, request, stream, by, Biased::enter_mine) {
            Ok(lent) => Some(lent),
            Err(0) => None,
            Err(NOT_ENTERED) => self.lend_as_others(apart, request, stream, buffer),
            Err(size) => self.lend_wished((request.0, size), stream, buffer),
        }
    }

    /// The same for a thread that may not enter the lane, unless it may then.
    #[inline(never)]
    fn lend_as_others(&self, apart: &Apart, request: (u64, u64), stream: Stream, buffer: bool) -> Option<Lent> {
        let by = (tag::current(), buffer);
        match self
            .front
            .allocate_by(apart, request, stream, by, Biased::lock_as_others)
        {
            Ok(lent) => Some(lent),
            Err(0) => None,
            Err(NOT_ENTERED) => self.lend_entered(apart, request, stream, buffer),
            Err(size) => self.lend_wished((request.0, size), stream, buffer),
        }
    }

    /// The same where the lane keeps a wish.
    #[cold]
    #[inline(never)]
    fn lend_wished(&self, (requested, size): (u64, u64), stream: Stream, buffer: bool) -> Option<Lent> {
        let mut place = self.tenant.lock();
        let wish = Wish {
            requested,
            size,
            stream,
            tag: tag::current(),
        };
        place.as_deref_mut()?.heap.lend_wished(&wish, buffer)
    }

    /// The best block for a request that no lane had one for, if the heap finds it at once, or after asking the driver how far another stream
    /// is.
    #[inline(never)]
    pub(crate) fn lend_short(
        &self,
        bytes: u64,
        stream: Stream,
        buffer: bool,
        driver: &Arc<dyn Driver>,
    ) -> Option<Lent> {
        if self.is_special() {
            return None;
        }
        let mut place = self.tenant.lock();
        let tenant = place.as_deref_mut()?;
        let lent = tenant.heap.allocate_short(bytes, stream, tag::current(), Grant::lent);
        tenant.buffers += i64::from(lent.is_some() & buffer);
        if lent.is_none()
            && let Some(wonder) = tenant.heap.take_wonder()
        {
            drop(place);
            return self.lend_once_known(wonder, (bytes, stream, buffer), driver);
        }
        lent
    }

    /// The same from a pool, where there is nothing to ask.
    #[inline(never)]
    pub(crate) fn lend_short_in(&self, pool: u16, bytes: u64, stream: Stream, buffer: bool) -> Option<Lent> {
        if self.is_special() {
            return None;
        }
        let mut place = self.tenant.lock();
        let tenant = place.as_deref_mut()?;
        let grant = tenant.heap.allocate_short_in(pool, bytes, stream, tag::current())?;
        tenant.buffers += i64::from(buffer);
        Some(grant.lent())
    }

    /// [`lend_short`](Home::lend_short) after an answer, or several.
    #[inline(never)]
    fn lend_once_known(
        &self,
        wonder: Wonder,
        (bytes, stream, buffer): (u64, Stream, bool),
        driver: &Arc<dyn Driver>,
    ) -> Option<Lent> {
        let _undisturbed = Uncancelled::begin();
        let mut wonder = Some(wonder);
        let (mut lent, mut due) = (None, false);
        while let Some(next) = wonder {
            let heard = next.ask(driver);
            let mut place = self.tenant.lock();
            let tenant = place.as_deref_mut()?;
            lent = tenant.heap.heard(heard, |heap| {
                heap.allocate_short(bytes, stream, tag::current(), Grant::lent)
            });
            tenant.buffers += i64::from(lent.is_some() & buffer);
            wonder = tenant.heap.take_wonder();
            due = tenant.heap.has_errands();
        }
        if due {
            self.run_what_is_due();
        }
        lent
    }

    /// The heap's number of a held block.
    pub(crate) fn block_of(&self, held: Held) -> Result<u32, Error> {
        self.not_forked()?;
        // A block that is held is known.
        self.front.block_of(held).ok_or(Error::Forked)
    }

    /// The bytes of a held block.
    pub(crate) fn bytes_of(&self, held: Held) -> Result<u64, Error> {
        match held.block() {
            Some(block) => self.see(|heap| heap.size_of(block)),
            None if !self.process.is_current() => Err(Error::Forked),
            // A block that is held is known.
            None => self.front.lent_bytes(held).ok_or(Error::Forked),
        }
    }

    /// A block, from the heap. Its lock is not held while the driver is called. `buffer`: it becomes one.
    pub(crate) fn allocate(&self, arena: u16, bytes: u64, stream: Stream, buffer: bool) -> Result<Grant, Error> {
        let _undisturbed = Uncancelled::begin();
        self.name_to_waiting(stream)?;
        self.naming(|| {
            let mut unmet = None;
            let result = self.allocate_named((arena, bytes, stream, buffer), &mut unmet);
            self.meet(unmet);
            result
        })
    }

    /// The program names a stream: it is alive, and takes an event that blocks wait for which it used.
    fn name_to_waiting(&self, stream: Stream) -> Result<(), Error> {
        if self.see(|heap| heap.awaits_name_of(stream))? {
            let id = self.device()?.id_of(stream);
            self.give(|heap| heap.identify_named(stream, Named { id, lasts: false }))?;
        }
        Ok(())
    }

    fn allocate_named(
        &self,
        (arena, bytes, stream, buffer): (u16, u64, Stream, bool),
        unmet: &mut Option<Unmet>,
    ) -> Result<Grant, Error> {
        // Once, and before the turn is somebody's.
        let _caller = self.is_special().then(|| self.keep_caller());
        let (mut turn, mut due) = (None, false);
        // Before all else that takes long, and before it is refused.
        let mut frees_first = true;
        let mut attempt = self.enter(|tenant| {
            let attempt = tenant.heap.attempt(arena, bytes, stream, tag::current());
            *unmet = tenant.heap.take_unmet();
            self.proceed(tenant, attempt, (&mut turn, &mut due, &mut frees_first), buffer)
        })?;
        loop {
            let mut suspended = match attempt {
                Attempt::Done(result) => {
                    drop(turn);
                    if due {
                        self.run_what_is_due();
                    }
                    return result;
                }
                Attempt::Suspended(suspended) => *suspended,
            };
            let made = if frees_first && !suspended.asks() {
                frees_first = false;
                free_memory();
                suspended.forget_frees();
                Err(suspended)
            } else if suspended.needs_turn() && turn.is_none() {
                turn = Some(self.wait_for_turn());
                Err(suspended)
            } else {
                Ok(suspended.run(&mut self.way())?)
            };
            attempt = self.enter(|tenant| {
                let attempt = match made {
                    Ok(made) => tenant.heap.resume(made),
                    Err(suspended) => tenant.heap.resume_anew(suspended),
                };
                self.proceed(tenant, attempt, (&mut turn, &mut due, &mut frees_first), buffer)
            })?;
        }
    }

    /// What is to be done with an attempt before the heap's lock is let go of: nobody has changed anything since.
    #[inline(always)]
    fn proceed<'a>(
        &'a self,
        tenant: &mut Tenant,
        mut attempt: Attempt,
        (turn, due, frees_first): (&mut Option<Turn<'a>>, &mut bool, &mut bool),
        buffer: bool,
    ) -> Attempt {
        tenant.buffers += i64::from(buffer && matches!(attempt, Attempt::Done(Ok(_))));
        match &mut attempt {
            Attempt::Done(_) => *due = tenant.heap.has_errands(),
            Attempt::Suspended(suspended) if !suspended.asks() => {
                *frees_first = *frees_first && may_free_memory();
                if *frees_first || !suspended.needs_turn() {
                    return attempt;
                }
                if turn.is_none() {
                    *turn = self.turn_now();
                }
                if turn.is_some() {
                    tenant.heap.begin_call(suspended);
                }
            }
            Attempt::Suspended(_) => {}
        }
        attempt
    }

    /// Takes a buffer back, and its block if it has one.
    #[inline(always)]
    pub(crate) fn take_back(&'static self, held: Held) {
        match held.lane() {
            Some(_) => self.take_back_lent(held),
            None => self.take_back_slow(held),
        }
    }

    #[inline(never)]
    fn take_back_lent(&'static self, held: Held) {
        if !self.process.is_current() {
            return self.take_back_slow(held);
        }
        match self.front.may_free_entered(held) {
            true => self.take_back_entered(held),
            false => self.take_back_as_others(held),
        }
    }

    /// The same by a thread that may enter the lane.
    #[inline(never)]
    fn take_back_entered(&'static self, held: Held) {
        match self.front.free_by(held, Biased::enter_mine) {
            Some(true) => {}
            Some(false) => self.take_back_slow(held),
            None => self.take_back_as_others(held),
        }
    }

    /// The same by one that may not, unless it may then.
    #[inline(never)]
    fn take_back_as_others(&'static self, held: Held) {
        match self.front.free_by(held, Biased::lock_as_others) {
            Some(true) => {}
            Some(false) => self.take_back_slow(held),
            None => self.take_back_entered(held),
        }
    }

    #[inline(never)]
    fn take_back_slow(&'static self, held: Held) {
        if let Some(block) = held.block()
            && !self.is_special()
            && let Some(errands) = self.take_back_early(block)
        {
            if let Some(errands) = errands {
                self.run_errands(errands);
                self.count_out();
            }
            return;
        }
        self.take_back_at_last(held);
    }

    /// Takes a buffer back that is not the last, if there is a handle. It counts until the errands are run that are left.
    #[inline(always)]
    fn take_back_early(&self, block: u32) -> Option<Option<Box<Errands>>> {
        let mut place = self.tenant.lock();
        let tenant = place.as_deref_mut().filter(|tenant| !tenant.orphaned)?;
        tenant.heap.take_back(block);
        let errands = tenant.heap.take_errands();
        if errands.is_none() {
            tenant.buffers -= 1;
        }
        Some(errands)
    }

    /// The same for a buffer that may be the last.
    #[inline(never)]
    fn take_back_at_last(&'static self, held: Held) {
        let taken = self.enter_for(ALL_STACKS, |tenant| {
            if let Some(block) = self.front.block_of(held) {
                tenant.heap.take_back(block);
            }
            let errands = tenant.heap.take_errands();
            tenant.buffers -= i64::from(errands.is_none());
            (errands, tenant.is_done(&self.front))
        });
        match taken {
            Ok((Some(errands), _)) => {
                self.run_errands(errands);
                self.count_out();
            }
            Ok((None, true)) => self.clear(),
            _ => {}
        }
    }

    /// A buffer is gone, which may be the last.
    #[inline(never)]
    fn count_out(&'static self) {
        let ended = self.enter_for(NEVER, |tenant| {
            tenant.buffers -= 1;
            tenant.is_done(&self.front)
        });
        if let Ok(true) = ended {
            self.clear();
        }
    }

    /// Takes a block back that is no buffer, and that a stream used last, if that is what it was handed out for. Whether it did.
    #[inline(always)]
    pub(crate) fn give_back_quick(&self, held: Held, stream: Stream) -> bool {
        match held.block() {
            Some(block) => self.give_back_short(block, stream),
            None => self.process.is_current() && self.front.free_after(held, stream),
        }
    }

    /// The same for a block that the heap knows.
    #[inline(never)]
    fn give_back_short(&self, block: u32, stream: Stream) -> bool {
        if self.is_special() {
            return false;
        }
        let mut place = self.tenant.lock();
        let Some(tenant) = place.as_deref_mut().filter(|tenant| tenant.heap.is_of(block, stream)) else {
            return false;
        };
        tenant.heap.take_back(block);
        let errands = tenant.heap.take_errands();
        drop(place);
        if let Some(errands) = errands {
            self.run_errands(errands);
        }
        true
    }

    /// Takes a block back that is no buffer.
    pub(crate) fn give_back(&self, held: Held) -> Result<(), Error> {
        if self.process.is_current() && self.front.free(held, false) {
            return Ok(());
        }
        self.give(|heap| {
            if let Some(block) = self.front.block_of(held) {
                heap.take_back(block);
            }
        })
    }
}
