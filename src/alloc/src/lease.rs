//! A buffer's share in its allocator's life, and its block.
//!
//! An `Arc` per buffer would cost two atomic operations per allocation, a fifth of all it costs. The heap's lock is held
//! anyway when a buffer comes or goes, so the heap counts buffers under it, and all buffers together hold one strong count: the
//! first takes it, the last gives it back.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::allocator::{Allocator, Shared};
use crate::heap::Heap;

/// A live buffer's hold on its allocator. Dropping it frees the block.
pub(crate) struct Lease {
    shared: *const Shared,
    /// `None` for a buffer of 0 bytes.
    block: Option<u32>,
}

// SAFETY: a lease is a counted pointer to `Shared`, which is Send and Sync, as `Arc<Shared>` would be.
unsafe impl Send for Lease {}
// SAFETY: as above; nothing in a lease changes through a shared reference.
unsafe impl Sync for Lease {}

const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Shared>();
};

impl Lease {
    /// A lease on a block just allocated from `heap`, which is `shared`'s.
    #[inline]
    pub(crate) fn take(shared: &Arc<Shared>, heap: &mut Heap, block: Option<u32>) -> Lease {
        if heap.leases == 0 {
            std::mem::forget(Arc::clone(shared));
        }
        heap.leases += 1;
        Lease {
            shared: Arc::as_ptr(shared),
            block,
        }
    }

    pub(crate) fn block(&self) -> Option<u32> {
        self.block
    }

    /// A handle to the allocator.
    pub(crate) fn allocator(&self) -> Allocator {
        // SAFETY: the pointer is from `Arc::as_ptr`, and the leases' strong count is held while this lease lives.
        let shared = unsafe {
            Arc::increment_strong_count(self.shared);
            Arc::from_raw(self.shared)
        };
        Allocator(shared)
    }
}

impl Deref for Lease {
    type Target = Shared;
    #[inline]
    fn deref(&self) -> &Shared {
        // SAFETY: the leases' strong count is held while this lease lives.
        unsafe { &*self.shared }
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        let last = match self.heap() {
            Ok(mut heap) => {
                if let Some(block) = self.block {
                    heap.free(block);
                }
                heap.leases -= 1;
                heap.leases == 0
            }
            // A forked child gives nothing back: the count is its parent's.
            Err(_) => false,
        };
        if last {
            // SAFETY: the count that the first lease took; no lease is left that stands on it, and the lock is released.
            unsafe { Arc::decrement_strong_count(self.shared) };
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("block", &self.block)
            .finish_non_exhaustive()
    }
}
