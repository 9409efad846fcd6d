//! Blocks out of a home and back.

use super::Home;
use super::enter::ALL_STACKS;
use crate::error::Error;
use crate::heap::{Attempt, Grant, Heap};
use crate::lane::{Held, Lent};
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
    pub(crate) fn lend_quick(&self, request: (u64, u64), stream: Stream, buffer: bool) -> Option<Lent> {
        if !self.process.is_current() {
            return None;
        }
        self.front.allocate(request, stream, tag::current(), buffer)
    }

    /// The best block for a request that no lane had one for, if the heap finds it at once: its address, its bytes, and how it is given
    /// back.
    #[inline(never)]
    pub(crate) fn lend_short(&self, bytes: u64, stream: Stream, buffer: bool) -> Option<(u64, u64, Held)> {
        if self.is_special() {
            return None;
        }
        let mut place = self.tenant.lock();
        let tenant = place.as_deref_mut()?;
        let parts = tenant
            .heap
            .allocate_short(bytes, stream, tag::current(), Grant::parts)?;
        tenant.buffers += i64::from(buffer);
        Some(parts)
    }

    /// The heap's number of a held block.
    pub(crate) fn block_of(&self, held: Held) -> Result<u32, Error> {
        if !self.process.is_current() {
            return Err(Error::Forked);
        }
        // A block that is held is known.
        self.front.block_of(held).ok_or(Error::Forked)
    }

    /// A block, from the heap. Its lock is not held while the driver takes its time. `buffer`: it becomes one.
    pub(crate) fn allocate(&self, arena: u16, bytes: u64, stream: Stream, buffer: bool) -> Result<Grant, Error> {
        let (mut attempt, mut turn) = self.enter(|tenant| {
            let mut attempt = tenant.heap.attempt(arena, bytes, stream, tag::current());
            tenant.count(&attempt, buffer);
            let turn = match &mut attempt {
                // Nobody changes anything before the lock is let go of.
                Attempt::Suspended(suspended) => {
                    self.turn.try_lock().ok().inspect(|_| tenant.heap.begin_call(suspended))
                }
                Attempt::Done(_) => None,
            };
            (attempt, turn)
        })?;
        loop {
            let suspended = match attempt {
                Attempt::Done(result) => return result,
                Attempt::Suspended(suspended) => *suspended,
            };
            let made = match &turn {
                Some(_) => Ok(suspended.run()),
                None => {
                    turn = Some(self.wait_for_turn());
                    Err(suspended)
                }
            };
            attempt = self.enter(|tenant| {
                let mut attempt = match made {
                    Ok(made) => tenant.heap.resume(made),
                    Err(suspended) => tenant.heap.resume_anew(suspended),
                };
                tenant.count(&attempt, buffer);
                if let Attempt::Suspended(suspended) = &mut attempt {
                    tenant.heap.begin_call(suspended);
                }
                attempt
            })?;
        }
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
        if self.process.is_current() && self.front.free(held, true) {
            return;
        }
        self.take_back_slow(held);
    }

    #[inline(never)]
    fn take_back_slow(&'static self, held: Held) {
        if let Some(block) = held.block()
            && !self.is_special()
            && let Some(due) = self.take_back_early(block)
        {
            if due {
                self.shrink_closing();
            }
            return;
        }
        self.take_back_at_last(held);
    }

    /// Takes a buffer back that is not the last, if there is a handle. Whether memory of a pool that is gone is to go back.
    #[inline(always)]
    fn take_back_early(&self, block: u32) -> Option<bool> {
        let mut place = self.tenant.lock();
        let tenant = place.as_deref_mut().filter(|tenant| !tenant.orphaned)?;
        tenant.buffers -= 1;
        tenant.heap.free(block);
        Some(tenant.heap.is_due())
    }

    /// The same for a buffer that may be the last.
    #[inline(never)]
    fn take_back_at_last(&'static self, held: Held) {
        let ended = self.enter_for(ALL_STACKS, |tenant| {
            if let Some(block) = self.front.block_of(held) {
                tenant.heap.free(block);
            }
            tenant.buffers -= 1;
            (tenant.is_done(&self.front), tenant.heap.is_due())
        });
        match ended {
            Ok((true, _)) => self.clear(),
            Ok((false, true)) => self.shrink_closing(),
            _ => {}
        }
    }

    /// Takes a block back that is no buffer, and that a stream used last, if that is what it is lent for. Whether it did.
    #[inline(always)]
    pub(crate) fn give_back_quick(&self, held: Held, stream: Stream) -> bool {
        self.process.is_current() && self.front.free_after(held, stream)
    }

    /// Takes a block back that is no buffer.
    pub(crate) fn give_back(&self, held: Held) -> Result<(), Error> {
        if self.process.is_current() && self.front.free(held, false) {
            return Ok(());
        }
        self.give(|heap| {
            if let Some(block) = self.front.block_of(held) {
                heap.free(block);
            }
        })
    }
}
