//! Functions of the program's that any thread calls, until they are taken away.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use gpumem_channel::Process;

use crate::lock::Shared;
use crate::process::{Uncancelled, sleep};

/// How often who waits for the last call looks.
const LOOK: Duration = Duration::from_micros(50);

thread_local! {
    /// In how many the thread is.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// One of them. Each call of it has a share.
pub struct Callback<F> {
    function: Shared<Option<Arc<F>>>,
    /// Whether there is one, for who is in a hurry.
    is_set: AtomicBool,
}

/// While the thread is in one.
struct Inside;

impl<F> Callback<F> {
    /// None, made by the compiler: a child that is forked while a thread makes it would wait for that thread for ever.
    pub const fn none() -> Callback<F> {
        Callback {
            function: Shared::new(None),
            is_set: AtomicBool::new(false),
        }
    }

    /// Puts another one in its place, and waits until no other thread is in the one before, which is never called after that. Who is in one
    /// itself does not wait, as two might for each other.
    pub fn set(&self, function: Option<F>) {
        let function = function.map(Arc::new);
        let before = self.function.lock().and_then(|mut held| {
            self.is_set.store(function.is_some(), Ordering::Relaxed);
            std::mem::replace(&mut *held, function)
        });
        // Of those that were in it when a child was forked none is there.
        let Some(before) = before.filter(|_| INSIDE.get() == 0 && !Process::current().is_forked()) else {
            return;
        };
        while Arc::strong_count(&before) > 1 {
            sleep(LOOK);
        }
        // After what they did.
        fence(Ordering::Acquire);
    }

    /// Whether there is one that the thread may call: it is in none, whichever.
    pub(crate) fn may_be_called(&self) -> bool {
        self.is_set.load(Ordering::Relaxed) && INSIDE.get() == 0
    }

    /// Calls it, without any lock of ours. The thread is not ended meanwhile: that would unwind our frames.
    pub fn call<R>(&self, by: impl FnOnce(&F) -> R) -> Option<R> {
        let function = self.function.lock()?.clone()?;
        let _undisturbed = Uncancelled::begin();
        let _inside = Inside::begin();
        Some(by(&function))
    }
}

impl Inside {
    fn begin() -> Inside {
        INSIDE.set(INSIDE.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
    }
}

impl<F> fmt::Debug for Callback<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callback").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::channel;

    use super::*;

    static ENDED: AtomicU32 = AtomicU32::new(0);
    static SLOW: Callback<fn()> = Callback::none();

    #[test]
    fn nobody_is_in_one_that_was_taken_away() {
        assert_eq!(SLOW.call(|_| ()), None);
        let (begun, begins) = channel();
        SLOW.set(Some(|| {
            sleep(Duration::from_millis(100));
            // In it nobody waits, for itself least of all.
            SLOW.set(None);
            ENDED.fetch_add(1, Ordering::Relaxed);
        }));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let begun = begun.clone();
                scope.spawn(move || {
                    SLOW.call(|slow| {
                        begun.send(()).unwrap();
                        slow();
                    })
                });
            }
            (0..2).for_each(|_| begins.recv().unwrap());
            SLOW.set(None);
            assert_eq!(ENDED.load(Ordering::Relaxed), 2);
        });
    }
}
