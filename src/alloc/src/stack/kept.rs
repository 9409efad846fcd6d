//! The call stack that a thread keeps while it has locks: taking one then could wait for a thread that waits for these.

use std::cell::Cell;
use std::marker::PhantomData;

use super::table::Stack;
use super::unwind::capture;

thread_local! {
    static KEPT: Cell<Option<Stack>> = const { Cell::new(None) };
}

/// What the calling thread does while it has this is done where it was begun; in another one, where that was.
#[derive(Debug)]
#[must_use = "stacks are taken anew when this is dropped"]
pub struct Kept {
    before: Option<Stack>,
    /// It is the thread's.
    here: PhantomData<*const ()>,
}

impl Kept {
    /// From here on. The stack is found by `find`, without any lock.
    pub(crate) fn begin(find: impl FnOnce() -> Stack) -> Kept {
        let before = KEPT.get();
        KEPT.set(Some(before.unwrap_or_else(find)));
        let here = PhantomData;
        Kept { before, here }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.set(self.before);
    }
}

/// The stack of the caller, or what is kept. To be called without any lock where none is.
pub(crate) fn kept_or_captured() -> Stack {
    KEPT.get().unwrap_or_else(capture)
}
