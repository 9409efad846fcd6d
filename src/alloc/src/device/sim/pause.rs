//! Driver calls that take as long as a test wants.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::Call;

/// What calls pass through.
#[derive(Debug, Default)]
pub(super) struct Gate {
    closed: Mutex<Closed>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Closed {
    call: Option<Call>,
    /// How many may wait at most.
    most: usize,
    waiting: usize,
    /// Which call panics next.
    #[cfg(test)]
    panics: Option<Call>,
}

/// While this lives calls of one kind wait, or the first one does.
#[derive(Debug)]
#[must_use = "calls wait until this is dropped"]
pub struct Pause<'a>(&'a Gate);

impl Gate {
    fn closed(&self) -> MutexGuard<'_, Closed> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn close(&self, call: Call, most: usize) -> Pause<'_> {
        let mut closed = self.closed();
        (closed.call, closed.most) = (Some(call), most);
        drop(closed);
        Pause(self)
    }

    #[cfg(test)]
    pub(super) fn panic_at(&self, call: Call) {
        self.closed().panics = Some(call);
    }

    /// Waits as long as calls of this kind do.
    pub(super) fn pass(&self, call: Call) {
        let mut closed = self.closed();
        #[cfg(test)]
        if closed.panics.take_if(|its| *its == call).is_some() {
            drop(closed);
            std::panic::resume_unwind(Box::new("a driver that panics"));
        }
        if closed.call != Some(call) || closed.waiting >= closed.most {
            return;
        }
        closed.waiting += 1;
        self.moved.notify_all();
        while closed.call == Some(call) {
            closed = self.moved.wait(closed).unwrap_or_else(PoisonError::into_inner);
        }
        closed.waiting -= 1;
    }
}

impl Pause<'_> {
    /// Waits until somebody waits.
    pub fn wait(&self) {
        let mut closed = self.0.closed();
        while closed.waiting == 0 {
            closed = self.0.moved.wait(closed).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.closed().call = None;
        self.0.moved.notify_all();
    }
}
