//! An order between two threads of which one pays nothing and the other for both.
//!
//! Each stores something and then looks at what the other stores; at least one of them has to see the other's. That takes a barrier
//! between store and look on both sides, which costs as much as an atomic operation. The kernel can have every thread of the process pass
//! one at the moment that one thread asks for it (`membarrier(2)`, Linux 4.14): then the other side is left with keeping its compiler
//! from turning the two round.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};

use crate::process;

/// Values of [`THERE`].
const UNASKED: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// Whether the kernel does it. Not behind a lock: a child that is forked while a thread asks would wait for that thread for ever. Who asks
/// at the same time asks, too.
static THERE: AtomicU8 = AtomicU8::new(UNASKED);
/// How long what a processor has stored may at most be seen by itself only. There is no promise: it is some nanoseconds.
const SEEN_WITHIN: Duration = Duration::from_millis(1);

/// Whether [`heavy`] is to be had. Where the process has threads already, the first call waits for the kernel: 12 to 15 ms.
pub(crate) fn is_there() -> bool {
    if THERE.load(Ordering::Relaxed) == UNASKED {
        let registered = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        let answer = if registered { YES } else { NO };
        // What another thread was told since holds.
        let _ = THERE.compare_exchange(UNASKED, answer, Ordering::Relaxed, Ordering::Relaxed);
    }
    THERE.load(Ordering::Relaxed) == YES
}

/// The side that pays nothing: between its store and its look.
#[inline(always)]
pub(crate) fn light() {
    compiler_fence(Ordering::SeqCst);
}

/// The side that pays: between its store and its look. 2 microseconds, and one interrupt for each other processor that runs a thread of
/// this process.
#[cold]
pub(crate) fn heavy() {
    fence(Ordering::SeqCst);
    if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
        // It said that it would: a sandbox was begun since.
        THERE.store(NO, Ordering::Relaxed);
        let refused = Instant::now();
        // A signal ends a sleep early, and a sandbox may refuse that, too.
        while refused.elapsed() < SEEN_WITHIN {
            process::sleep(SEEN_WITHIN);
        }
    }
}
