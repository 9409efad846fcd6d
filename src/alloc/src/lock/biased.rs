//! A lock that the thread which always takes it takes without an atomic operation.
//!
//! Two of those are a quarter of what a cached block costs. So a thread that took a lock often enough, with nobody in between, may
//! *enter*: it says that it is inside, sees that it still may, and says when it is out, by plain stores. Whoever else wants the
//! lock takes that right away first, has the kernel see to the order between the two ([`asymmetric`]), and waits until the thread is
//! out. That costs microseconds, so the right is given again only after twice as many turns. Who is given it lets go of the lock first and
//! then enters as it will from then on: by the lock it would have the value and could enter as well.
//!
//! Each thread says at a place of its own where it is ([`Seat`]), once for each floor: who is inside of a heap takes a lane's lock, too. So
//! a thread that was about to enter, and stopped before it said so, when the right was taken away, says that whenever it goes on without
//! anybody else being misled.
#![allow(unsafe_code, reason = "a lock hands out its value")]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::atomic::{AtomicUsize, Ordering};
use super::seat::Seat;
use super::{Guard, Lock, asymmetric, patience, seats};

/// Turns of one thread, with nobody in between, after which it may enter; and the most that are asked for again.
pub(super) const TURNS: u32 = if cfg!(test) { 4 } else { 1024 };
const TURNS_MAX: u32 = 1 << 16;
/// No seat.
const NOBODY: usize = 0;

/// The floor of locks that are taken under no other one, and of those that are.
pub(crate) const OUTER: usize = 0;
pub(crate) const INNER: usize = 1;

/// A value that one thread at a time may use. A panic under it leaves it unlocked and the value as it was. A thread may have entered one
/// lock of a floor at a time; while it has, it takes others of that floor as everybody does.
pub(crate) struct Biased<T, const FLOOR: usize = INNER> {
    /// The number of the seat whose thread may enter. Changes under the lock.
    who: AtomicUsize,
    /// Everybody else's, and what decides who may enter.
    lock: Lock<Turns>,
    value: UnsafeCell<T>,
}

/// Who took the lock.
#[derive(Debug)]
struct Turns {
    /// The number of the last one's seat, and how often in a row.
    last: usize,
    row: u32,
    /// How often is often enough.
    enough: u32,
    /// The seat of who may enter.
    seat: Option<&'static Seat>,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            last: NOBODY,
            row: 0,
            enough: TURNS,
            seat: None,
        }
    }
}

// SAFETY: the value is reached through a guard, and there is one at a time: of a thread that has the lock while nobody may enter, or of the
// one thread that may, which says at its seat that it is inside and enters no second time. Each has taken what the one before gave: by the
// lock or, from who entered, by its seat or by being the same thread.
unsafe impl<T: Send, const FLOOR: usize> Sync for Biased<T, FLOOR> {}

/// The value, for who has it.
pub(crate) struct Inside<'a, T, const FLOOR: usize = INNER> {
    of: &'a Biased<T, FLOOR>,
    has: Has<'a>,
    /// It lends the value as this does, and where a thread is it says itself: it stays with its thread.
    lends: PhantomData<*mut T>,
}

/// What it has it by.
enum Has<'a> {
    /// It has entered.
    Entered,
    Locked {
        _turns: Guard<'a, Turns>,
    },
}

impl<T, const FLOOR: usize> Biased<T, FLOOR> {
    pub(crate) fn new(value: T) -> Biased<T, FLOOR> {
        asymmetric::is_there();
        Biased {
            who: AtomicUsize::new(NOBODY),
            lock: Lock::new(Turns::default()),
            value: UnsafeCell::new(value),
        }
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> Inside<'_, T, FLOOR> {
        match self.enter() {
            Some(inside) => inside,
            None => self.lock_unhurried(),
        }
    }

    /// [`lock_as_others`](Biased::lock_as_others), once for all callers that are not in a hurry.
    #[inline(never)]
    fn lock_unhurried(&self) -> Inside<'_, T, FLOOR> {
        loop {
            if let Some(inside) = self.lock_as_others().or_else(|| self.enter()) {
                return inside;
            }
        }
    }

    /// Whether the calling thread may enter. One that is inside already (in a signal's handler) may not: it waits for ever, as at any
    /// lock.
    #[inline(always)]
    pub(crate) fn is_mine(&self) -> bool {
        let seat = seats::mine();
        self.who.load(Ordering::Relaxed) == seat.number() && seat.is_outside(FLOOR)
    }

    /// The value, for the thread that may enter.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Option<Inside<'_, T, FLOOR>> {
        if self.is_mine() { self.enter_mine() } else { None }
    }

    /// The value, for a thread that [could](Biased::is_mine) enter a moment ago.
    #[inline(always)]
    pub(crate) fn enter_mine(&self) -> Option<Inside<'_, T, FLOOR>> {
        let seat = seats::mine();
        seat.enter(FLOOR, self.number());
        asymmetric::light();
        if self.who.load(Ordering::Relaxed) != seat.number() {
            seat.leave(FLOOR);
            return None;
        }
        Some(Inside {
            of: self,
            has: Has::Entered,
            lends: PhantomData,
        })
    }

    /// What tells it from others.
    #[inline(always)]
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Whether a thread may enter it.
    #[cfg(test)]
    pub(super) fn may_be_entered(&self) -> bool {
        self.who.load(Ordering::Relaxed) != NOBODY
    }

    /// The value, for who did not [enter](Biased::enter); `None` for a thread that may from now on, and has to.
    #[inline(always)]
    pub(crate) fn lock_as_others(&self) -> Option<Inside<'_, T, FLOOR>> {
        let mine = seats::take();
        let mut turns = self.lock.lock();
        if turns.seat.is_some() {
            self.take_right_away(&mut turns);
        }
        let me = mine.map_or(NOBODY, Seat::number);
        if turns.last == me {
            turns.row += 1;
        } else {
            (turns.last, turns.row) = (me, 0);
        }
        if turns.row >= turns.enough && self.give_right(&mut turns, mine) {
            return None;
        }
        Some(Inside {
            of: self,
            has: Has::Locked { _turns: turns },
            lends: PhantomData,
        })
    }

    #[cold]
    #[inline(never)]
    fn take_right_away(&self, turns: &mut Turns) {
        self.who.store(NOBODY, Ordering::Relaxed);
        // Either the thread sees this, or what it says is seen here.
        asymmetric::heavy();
        if let Some(seat) = turns.seat.take() {
            patience::until(|| seat.has_left(FLOOR, self.number()));
        }
        turns.enough = turns.enough.saturating_mul(2).min(TURNS_MAX);
        turns.row = 0;
    }

    /// Gives a thread that took it often enough the right to enter, where that is to be had. Whether it did. Its turns are counted anew.
    #[cold]
    #[inline(never)]
    fn give_right(&self, turns: &mut Turns, mine: Option<&'static Seat>) -> bool {
        turns.row = 0;
        // One that is inside of another lock of the floor could not enter now.
        let mine = mine.filter(|seat| asymmetric::is_there() && seat.is_outside(FLOOR));
        if let Some(seat) = mine {
            turns.seat = mine;
            self.who.store(seat.number(), Ordering::Relaxed);
        }
        mine.is_some()
    }
}

impl<T, const FLOOR: usize> Drop for Inside<'_, T, FLOOR> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Has::Entered = self.has {
            // Looked up again, as a register less costs more.
            seats::mine().leave(FLOOR);
        }
    }
}

impl<T, const FLOOR: usize> Deref for Inside<'_, T, FLOOR> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: no other guard is there, as `Sync` says above, and this one lends the value no longer than it is borrowed itself.
        unsafe { &*self.of.value.get() }
    }
}

impl<T, const FLOOR: usize> DerefMut for Inside<'_, T, FLOOR> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T, const FLOOR: usize> fmt::Debug for Biased<T, FLOOR> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Biased").field("who", &self.who).finish_non_exhaustive()
    }
}
