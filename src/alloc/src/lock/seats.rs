//! Which thread has which seat. There are as many as there ever were threads at the same time that needed one.

use std::cell::Cell;

use super::Shared;
use super::atomic::AtomicUsize;
use super::seat::{FLOORS, OUTSIDE, Seat};

/// That of threads which have none, so that nobody has to ask whether there is one: no lock is ever entered from it.
static NONE: Seat = new();
/// Those of threads that have ended, for others.
static EMPTY: Shared<Vec<&'static Seat>> = Shared::new(Vec::new());

thread_local! {
    // Two, as one that something is done with at the thread's end costs a look at each use.
    static MINE: Cell<&'static Seat> = const { Cell::new(&NONE) };
    static LEAVES: Leaves = const { Leaves };
}

/// Gives a thread's seat to others when it ends.
struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        let mine = MINE.replace(&NONE);
        if let Some(mut empty) = EMPTY.lock() {
            empty.push(mine);
        }
    }
}

const fn new() -> Seat {
    Seat {
        inside: [const { AtomicUsize::new(OUTSIDE) }; FLOORS],
    }
}

/// The calling thread's, or nobody's.
#[inline(always)]
pub(super) fn mine() -> &'static Seat {
    MINE.get()
}

/// The calling thread's, now that it needs one. `None` while it ends, or in a forked child.
#[inline(always)]
pub(super) fn take() -> Option<&'static Seat> {
    let seat = mine();
    if !std::ptr::eq(seat, &raw const NONE) {
        return Some(seat);
    }
    take_first()
}

#[cold]
#[inline(never)]
fn take_first() -> Option<&'static Seat> {
    let mut empty = EMPTY.lock()?;
    LEAVES.try_with(|_| ()).ok()?;
    MINE.set(empty.pop().unwrap_or_else(|| Box::leak(Box::new(new()))));
    Some(mine())
}
