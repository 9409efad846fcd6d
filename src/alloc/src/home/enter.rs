//! Ways to the heap of a home, and what they look at first: whether this is a forked child, and whether the heap wants call stacks.

use std::sync::atomic::Ordering;

use super::{Home, Tenant};
use crate::error::Error;
use crate::heap::Heap;
use crate::history::{History, Stacks};
use crate::stack::{self, Kept, Stack};

/// Values of [`Home::recording`].
pub(super) const OFF: u8 = 0;
const NO_STACKS: u8 = 1;
const STACKS_OF_ALLOCATIONS: u8 = 2;
pub(super) const ALL_STACKS: u8 = 3;
/// No value of it: for what no event comes of.
pub(super) const NEVER: u8 = 0x7f;
/// Set while requests may go to pools without saying so.
pub(super) const ROUTED: u8 = 0x80;

impl Home {
    /// Does something with the heap, unless this is a forked child: there its lock may be held for ever by a thread that does
    /// not exist.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        self.enter(|tenant| work(&mut tenant.heap))
    }

    /// [`with`](Home::with) for what is in no history.
    #[inline]
    pub(crate) fn see<R>(&self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        self.enter_for(NEVER, |tenant| work(&mut tenant.heap))
    }

    /// [`with`](Home::with) for what gives blocks back.
    #[inline]
    pub(crate) fn give<R>(&self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        let work = |tenant: &mut Tenant| (work(&mut tenant.heap), tenant.heap.take_errands());
        let (result, errands) = self.enter_for(ALL_STACKS, work)?;
        if let Some(errands) = errands {
            self.run_errands(errands);
        }
        Ok(result)
    }

    /// Does something with the heap if it is still that of the tenant. Unlike a handle, knowing who lives here keeps nobody.
    pub(crate) fn visit<R>(&self, tenant: u64, work: impl FnOnce(&mut Heap) -> R) -> Option<R> {
        if !self.process.is_current() {
            return None;
        }
        let mut place = self.tenant.lock();
        let there = place.as_deref_mut().filter(|there| there.id == tenant)?;
        Some(work(&mut there.heap))
    }

    /// Switches the heap's history on or off.
    pub(crate) fn record_history(&self, history: History) -> Result<(), Error> {
        self.with(|heap| {
            heap.record_history(history)?;
            let recording = match history {
                History::Off => OFF,
                History::On { stacks, .. } => match stacks {
                    Stacks::None => NO_STACKS,
                    Stacks::Alloc => STACKS_OF_ALLOCATIONS,
                    Stacks::All => ALL_STACKS,
                },
            };
            let routed = self.recording.load(Ordering::Relaxed) & ROUTED;
            self.recording.store(recording | routed, Ordering::Relaxed);
            heap.set_lending(recording | routed == OFF);
            Ok(())
        })?
    }

    /// An error in a forked child: what is the parent's may be locked there for ever.
    pub(crate) fn not_forked(&self) -> Result<(), Error> {
        match self.process.is_current() {
            true => Ok(()),
            false => Err(Error::Forked),
        }
    }

    /// Whether requests may go to pools without saying so.
    #[inline]
    pub(crate) fn is_routed(&self) -> bool {
        self.recording.load(Ordering::Relaxed) & ROUTED != 0 && self.process.is_current()
    }

    /// Says so, or not any more.
    pub(crate) fn set_routed(&self, routed: bool) {
        // Under the lock, like every change of it. No event comes of it, so that no stack is taken: who does this has the routes.
        let _ = self.see(|heap| {
            let recording = self.recording.load(Ordering::Relaxed) & !ROUTED;
            let routed = if routed { ROUTED } else { 0 };
            self.recording.store(recording | routed, Ordering::Relaxed);
            heap.set_lending(recording | routed == OFF);
        });
    }

    fn wants_stacks(&self, stacks: u8) -> bool {
        self.recording.load(Ordering::Relaxed) & !ROUTED >= stacks
    }

    /// Keeps the stack of the caller for as long as it has a lock, other than the heap's.
    pub(crate) fn keep_caller(&self) -> Kept {
        Kept::begin(
            || match self.process.is_current() && self.wants_stacks(STACKS_OF_ALLOCATIONS) {
                true => stack::capture(),
                false => Stack::NONE,
            },
        )
    }

    /// Whether this is a forked child, or the heap has a history, or there are routes: none is in a hurry.
    #[inline(always)]
    pub(super) fn is_special(&self) -> bool {
        !self.process.is_current() | (self.recording.load(Ordering::Relaxed) != OFF)
    }

    #[inline]
    pub(super) fn enter<R>(&self, work: impl FnOnce(&mut Tenant) -> R) -> Result<R, Error> {
        self.enter_for(STACKS_OF_ALLOCATIONS, work)
    }

    /// `stacks`: from which value of [`recording`](Home::recording) on the call stack is taken.
    #[inline]
    pub(super) fn enter_for<R>(&self, stacks: u8, work: impl FnOnce(&mut Tenant) -> R) -> Result<R, Error> {
        if self.is_special() {
            return self.enter_recorded(stacks, work);
        }
        match &mut *self.tenant.lock() {
            Some(tenant) => Ok(work(tenant)),
            // A handle or a buffer keeps its tenant: this is never reached.
            None => Err(Error::Forked),
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_recorded<R>(&self, stacks: u8, work: impl FnOnce(&mut Tenant) -> R) -> Result<R, Error> {
        self.not_forked()?;
        // Before the heap is locked: unwinding may wait for whoever loads a library, and an interpreter for whoever runs in it, and these may
        // allocate. For who has another lock the stack is kept.
        let caller = if self.wants_stacks(stacks) {
            stack::kept_or_captured()
        } else {
            Stack::NONE
        };
        match &mut *self.tenant.lock() {
            Some(tenant) => {
                tenant.heap.attribute(caller);
                let result = work(tenant);
                tenant.heap.attribute(Stack::NONE);
                Ok(result)
            }
            None => Err(Error::Forked),
        }
    }
}
