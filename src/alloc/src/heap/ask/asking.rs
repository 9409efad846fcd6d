//! Who asks the driver something without the heap's lock and without the turn, and who waits for that: a stream is not to be destroyed
//! while a call names it, and no graph is to be captured while an event is recorded or queried.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::stream::Stream;

/// What is being asked now.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    now: Mutex<Now>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Now {
    asking: usize,
    /// The streams that calls name, as often as they do.
    named: Vec<Stream>,
    waiting: usize,
}

/// Somebody asks one thing until this is dropped.
#[derive(Debug)]
pub(in crate::heap) struct Asking {
    asked: Arc<Asked>,
    /// The stream that the call names, if it does.
    named: Option<Stream>,
}

impl Asked {
    /// To be called under the heap's lock: who waits has said there that nobody is to begin.
    pub(in crate::heap) fn begin(self: &Arc<Asked>, named: Option<Stream>) -> Asking {
        let mut now = self.now();
        now.asking += 1;
        now.named.extend(named);
        Asking {
            asked: Arc::clone(self),
            named,
        }
    }

    /// Waits until no call names a stream. To be called without the heap's lock.
    pub(in crate::heap) fn wait_for(&self, stream: Stream) {
        self.wait_until(|now| !now.named.contains(&stream));
    }

    /// Waits until nobody asks anything. To be called without the heap's lock.
    pub(crate) fn wait_for_all(&self) {
        self.wait_until(|now| now.asking == 0);
    }

    /// Whether who retires a stream would wait.
    #[cfg(test)]
    pub(in crate::heap) fn names(&self, stream: Stream) -> bool {
        self.now().named.contains(&stream)
    }

    fn wait_until(&self, done: impl Fn(&Now) -> bool) {
        let mut now = self.now();
        now.waiting += 1;
        while !done(&now) {
            now = self.ended.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        now.waiting -= 1;
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut now = self.asked.now();
        now.asking -= 1;
        if let Some(stream) = self.named
            && let Some(at) = now.named.iter().position(|named| *named == stream)
        {
            now.named.swap_remove(at);
        }
        // Each costs a system call.
        if now.waiting > 0 {
            self.asked.ended.notify_all();
        }
    }
}
