//! Passes the latest value from a thread to the main loop.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Holds at most one value. [`put`](Slot::put) never waits for the reader.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    value: Mutex<Option<T>>,
    filled: Notify,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot {
            value: Mutex::new(None),
            filled: Notify::new(),
        }
    }
}

impl<T> Slot<T> {
    /// Puts a value. If the previous one was not taken yet, `merge(old, new)` combines the two.
    pub(crate) fn put(&self, value: T, merge: impl FnOnce(T, T) -> T) {
        let mut slot = self.lock();
        *slot = Some(match slot.take() {
            Some(old) => merge(old, value),
            None => value,
        });
        drop(slot);
        self.filled.notify_one();
    }

    /// Waits for a value and takes it. Cancelling the future loses nothing.
    pub(crate) async fn take(&self) -> T {
        loop {
            if let Some(value) = self.lock().take() {
                return value;
            }
            self.filled.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;

    #[test]
    fn latest_value_wins_and_merge_loses_nothing() {
        let slot = Arc::new(Slot::default());
        let merge = |old: (u32, Vec<u32>), new: (u32, Vec<u32>)| (new.0, [old.1, new.1].concat());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let putter = slot.clone();
        let thread = std::thread::spawn(move || (0..1000).for_each(|i| putter.put((i, vec![i]), merge)));
        let mut seen = Vec::new();
        while seen.len() < 1000 {
            let (newest, all) = runtime.block_on(slot.take());
            assert_eq!(all.last(), Some(&newest));
            seen.extend(all);
        }
        thread.join().unwrap();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
    }
}
