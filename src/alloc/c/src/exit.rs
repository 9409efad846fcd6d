//! The end of the process.
//!
//! The allocators live in global variables and are never dropped: memory goes back with the process, and CUDA may be gone before
//! the last destructor of another library frees its last tensor. But goodbye is said on their channels, or each program would look as
//! if it had been killed. No lock is taken for that: if a signal handler calls `exit`, who has it may be the thread that was interrupted.

use std::panic::catch_unwind;
use std::sync::atomic::{self, AtomicBool, AtomicUsize, Ordering};

use crate::devices;

static WATCHED: AtomicBool = AtomicBool::new(false);
/// The thread that exits, by the C library's handle, which is never 0; 0 before. It ends with the process: no other one has its handle.
static EXITING: AtomicUsize = AtomicUsize::new(0);

/// Whether the process has begun to exit.
pub(crate) fn has_begun() -> bool {
    EXITING.load(Ordering::Relaxed) != 0
}

/// Whether it is the calling thread that exits, perhaps from a signal's handler, in the middle of one of our functions. Others work on, some
/// until a destructor has waited for them: what they free they need again.
#[inline]
pub(crate) fn is_here() -> bool {
    let exiting = EXITING.load(Ordering::Relaxed);
    exiting != 0 && exiting == this_thread()
}

#[cold]
fn this_thread() -> usize {
    // SAFETY: names the calling thread.
    unsafe { libc::pthread_self() as usize }
}

/// Asks to be told of the exit. To be called once a device is open: what is asked for last is called first, so the driver still
/// works then.
pub(crate) fn watch() {
    if !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the function lives as long as the process: this library is never unmapped (build.rs). If there is no room
        // for it, channels look like those of a killed program.
        unsafe { libc::atexit(begin) };
    }
    // Either who exits finds the device, or who opened it finds that.
    atomic::fence(Ordering::SeqCst);
    if has_begun() {
        say_goodbye();
    }
}

extern "C" fn begin() {
    EXITING.store(this_thread(), Ordering::Relaxed);
    // As above.
    atomic::fence(Ordering::SeqCst);
    say_goodbye();
}

fn say_goodbye() {
    let ended = catch_unwind(|| devices::in_use().for_each(|(_, allocator)| allocator.goodbye()));
    if let Err(panic) = ended {
        std::mem::forget(panic);
    }
}
