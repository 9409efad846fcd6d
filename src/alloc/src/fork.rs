//! Knowing that we are in a forked child, at the cost of one load.
//!
//! After `fork()` another thread may hold the allocator's lock for ever and CUDA does not work at all, so a child must
//! touch neither. `getpid` would tell, but it is a system call; a fork handler counts instead.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);
static HANDLER: Once = Once::new();

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process something was made in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u32);

impl Process {
    /// The calling process.
    pub(crate) fn current() -> Process {
        HANDLER.call_once(|| {
            // SAFETY: the handler is a function of this library that only adds to an atomic, which is
            // async-signal-safe. Should registration fail for want of memory, forks go unnoticed, as without it.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is still the process it was made in.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }
}
