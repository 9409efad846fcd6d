//! Threads that another one ends with `pthread_cancel`.
#![allow(unsafe_code, reason = "the C library's threads have no safe interface")]

use std::ffi::c_int;
use std::marker::PhantomData;
use std::time::Duration;

use rustix::thread::{Timespec, nanosleep};

/// `PTHREAD_CANCEL_DISABLE`, the same in GNU's C library and in musl.
const DISABLE: c_int = 1;

unsafe extern "C" {
    /// Of POSIX; the `libc` crate does not have it.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// The calling thread is not ended while it has this. Ending one unwinds its stack as an exception does that nobody may catch, and the frames
/// of Rust are not made for that: the process would end. It happens where the C library waits: in files, in sleeping, in what a driver
/// does. Whoever asked for it gets it later.
#[derive(Debug)]
#[must_use = "the thread can be ended again when this is dropped"]
pub struct Uncancelled {
    before: c_int,
    /// It is the thread's.
    here: PhantomData<*const ()>,
}

impl Uncancelled {
    /// From here on.
    pub fn begin() -> Uncancelled {
        let mut before = DISABLE;
        // SAFETY: sets a number of the calling thread's and writes what it was.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Uncancelled {
            before,
            here: PhantomData,
        }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut ours = DISABLE;
        // SAFETY: as above, and this ends nobody: one who is to be ended at any time must not be in here.
        unsafe { pthread_setcancelstate(self.before, &mut ours) };
    }
}

/// Sleeps for less than a second. The standard library's sleep is one of those places where threads are ended.
pub(crate) fn sleep(time: Duration) {
    let _ = nanosleep(&Timespec {
        tv_sec: 0,
        tv_nsec: time.subsec_nanos().into(),
    });
}
