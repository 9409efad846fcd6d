//! The end of the process.
//!
//! The allocators live in global variables and are never dropped: memory goes back with the process, and CUDA may be gone before
//! the last destructor of another library frees its last tensor. But goodbye is said on their channels, or each program would look as
//! if it had been killed. No lock is taken for that: if a signal handler calls `exit`, who has it may be the thread that was interrupted.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::devices;

static WATCHED: AtomicBool = AtomicBool::new(false);
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether the process has begun to exit.
#[inline]
pub(crate) fn has_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// Asks to be told of the exit. To be called once a device is open: what is asked for last is called first, so the driver still
/// works then.
pub(crate) fn watch() {
    if !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the function lives as long as the process: this library is never unmapped (build.rs). If there is no room
        // for it, channels look like those of a killed program.
        unsafe { libc::atexit(begin) };
    }
}

extern "C" fn begin() {
    BEGUN.store(true, Ordering::Relaxed);
    let ended = catch_unwind(|| devices::in_use().for_each(|(_, allocator)| allocator.goodbye()));
    if let Err(panic) = ended {
        std::mem::forget(panic);
    }
}
