//! A descriptor entry that passes from one thread's file to another's. Compiles the same source file over modelled
//! atomics.

use super::Without::{Acquire, Release};
use super::{Arc, needs_every_fence, thread};
use descriptor::{Descriptor, FREE, OPENING};

#[allow(clippy::duplicate_mod, reason = "over other atomics")]
#[path = "../map/descriptor.rs"]
mod descriptor;

mod atomic {
    use std::cell::Cell;
    pub(super) use std::sync::atomic::Ordering;

    use loom::cell::UnsafeCell;

    use crate::ordering_tests::{PASSED, WITHOUT, Without};

    /// Loom's atomic, whose ordering can be left out.
    #[derive(Debug)]
    pub(super) struct AtomicI32(pub(super) loom::sync::atomic::AtomicI32);

    impl AtomicI32 {
        pub(super) fn load(&self, order: Ordering) -> i32 {
            self.0.load(order)
        }
        pub(super) fn store(&self, value: i32, order: Ordering) {
            self.0.store(value, unless_left_out(order));
        }
        pub(super) fn compare_exchange(&self, old: i32, new: i32, done: Ordering, not: Ordering) -> Result<i32, i32> {
            self.0.compare_exchange(old, new, unless_left_out(done), not)
        }
    }

    fn unless_left_out(order: Ordering) -> Ordering {
        let (released, acquired) = PASSED.get();
        let this = match order {
            Ordering::Release => {
                PASSED.set((released + 1, acquired));
                Without::Release(released)
            }
            _ => {
                PASSED.set((released, acquired + 1));
                Without::Acquire(acquired)
            }
        };
        if WITHOUT.get() == this {
            Ordering::Relaxed
        } else {
            order
        }
    }

    /// A number that must not be stored while another thread may read it. Loom does not delay relaxed loads as
    /// processors do, but it detects unordered access to a cell.
    #[derive(Debug, Default)]
    pub(super) struct AtomicU64 {
        value: Cell<u64>,
        access: UnsafeCell<()>,
    }

    impl AtomicU64 {
        pub(super) fn load(&self, _: Ordering) -> u64 {
            self.access.with(|_| self.value.get())
        }
        pub(super) fn store(&self, value: u64, _: Ordering) {
            self.access.with_mut(|_| self.value.set(value));
        }
    }
}

/// One file leaves the entry and another one takes it: the first sees its own numbers.
fn entry() {
    let entry = Arc::new(Descriptor {
        fd: atomic::AtomicI32(loom::sync::atomic::AtomicI32::new(FREE)),
        process: Default::default(),
        file: Default::default(),
    });
    assert!(entry.reserve(1, [1, 1]));
    assert_eq!(entry.inherited(2), Some(OPENING));
    entry.fill(3);
    let goes = {
        let entry = entry.clone();
        thread::spawn(move || assert_eq!(entry.take(3), Some([1, 1]), "another file's"))
    };
    let comes = entry.reserve(1, [2, 2]);
    if comes {
        entry.fill(4);
    }
    goes.join().unwrap();
    assert_eq!(entry.inherited(2), comes.then_some(4), "as a child sees it");
    assert_eq!(entry.inherited(1), None, "its own");
}

#[test]
fn entry_is_reused_only_after_it_was_read() {
    // The earlier ones are those of the first file alone.
    needs_every_fence(u32::MAX, entry, &[Release(2), Acquire(1)]);
}
