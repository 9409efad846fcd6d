//! Which thread has which seat. There are as many as there ever were threads at the same time that needed one.

use std::cell::Cell;

use super::Shared;
use super::seat::Seat;

/// Those of threads that have ended, for others.
static EMPTY: Shared<Vec<&'static Seat>> = Shared::new(Vec::new());

thread_local! {
    // Two, as one that something is done with at the thread's end costs a look at each use.
    static MINE: Cell<Option<&'static Seat>> = const { Cell::new(None) };
    static LEAVES: Leaves = const { Leaves };
}

/// Gives a thread's seat to others when it ends.
struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        if let (Some(mine), Some(mut empty)) = (MINE.take(), EMPTY.lock()) {
            empty.push(mine);
        }
    }
}

/// The calling thread's, if it ever needed one.
#[inline(always)]
pub(super) fn mine() -> Option<&'static Seat> {
    MINE.get()
}

/// The calling thread's, now that it needs one. `None` while it ends, or in a forked child.
pub(super) fn take() -> Option<&'static Seat> {
    if let Some(mine) = mine() {
        return Some(mine);
    }
    LEAVES.try_with(|_| ()).ok()?;
    let empty = EMPTY.lock()?.pop();
    let mine = empty.unwrap_or_else(|| Box::leak(Box::new(Seat::new())));
    MINE.set(Some(mine));
    Some(mine)
}
