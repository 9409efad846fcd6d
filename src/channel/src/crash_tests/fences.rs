//! The fences before the counts. Loom runs the functions that write a record, but only models of those that count it, and
//! x86-64 keeps the order of stores without fences.

use std::cell::{Cell, RefCell};
use std::ptr;

use super::*;
use crate::format::live;

thread_local! {
    /// Whether the writer has passed a release fence since its last store.
    static FENCED: Cell<bool> = const { Cell::new(false) };
    /// The words that were stored, each with whether a release fence came right before.
    static STORES: RefCell<Vec<(*const CrashWord, bool)>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn passed() {
    FENCED.set(true);
}

pub(super) fn stored(word: &CrashWord) {
    let store = (ptr::from_ref(word), FENCED.replace(false));
    STORES.with_borrow_mut(|stores| stores.push(store));
}

#[test]
fn counts_are_stored_right_after_a_release_fence() {
    let mut writer = fresh();
    STORES.take();
    for operation in OPERATIONS {
        operation(&mut writer);
    }
    let stores = STORES.take();
    let start = Layout::new(CAPACITY).live.start;
    for count in [live::EVENTS, live::BLOCKS, live::SEGMENTS] {
        let word = ptr::from_ref(&writer.memory()[start + count]);
        let fenced: Vec<bool> = stores
            .iter()
            .filter(|store| store.0 == word)
            .map(|store| store.1)
            .collect();
        assert!(!fenced.is_empty(), "{count}: it was never stored");
        assert!(fenced.iter().all(|fenced| *fenced), "{count}: {fenced:?}");
    }
}
