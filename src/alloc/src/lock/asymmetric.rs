//! An order between two threads of which one pays nothing and the other for both.
//!
//! Each stores something and then looks at what the other stores; at least one of them has to see the other's. That takes a barrier
//! between store and look on both sides, which costs as much as an atomic operation. The kernel can have every thread of the process pass
//! one at the moment that one thread asks for it (`membarrier(2)`, Linux 4.14): then the other side is left with keeping its compiler
//! from turning the two round.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};
use std::time::Duration;

use rustix::thread::{MembarrierCommand, membarrier};

use crate::process;

/// The kernel has refused what it said it would do: a sandbox was begun since.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether [`heavy`] is to be had. Where the process has threads already, the first call waits for the kernel: 12 to 15 ms.
pub(crate) fn is_there() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    let there = *THERE.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok());
    there && !REFUSED.load(Ordering::Relaxed)
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
        REFUSED.store(true, Ordering::Relaxed);
        // What another processor has stored is seen by all a few nanoseconds later, without a promise how many.
        process::sleep(Duration::from_millis(1));
    }
}
