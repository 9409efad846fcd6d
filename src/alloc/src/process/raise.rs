//! Signals that a write raises, and those that a thread of ours would take from the program.
#![allow(unsafe_code, reason = "signal masks have no safe interface")]

use std::ffi::c_int;
use std::mem::MaybeUninit;

use libc::{sigset_t, timespec};

use super::Uncancelled;

/// Nobody reads; the file would be larger than the process may make one. They end a program that does not expect them, which has not
/// written anything.
const RAISED: [c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// What the calling thread writes while it has this raises no signal; it only fails. What the process does with these signals stays as it is.
/// Nor is the thread ended, which it could be wherever it writes.
#[derive(Debug)]
pub(crate) struct Unraised {
    before: sigset_t,
    /// Those that the program did not have pending already.
    ours: sigset_t,
    /// Goes last: what is done below is one of the places where threads are ended.
    _uncancelled: Uncancelled,
}

impl Unraised {
    pub(crate) fn begin() -> Unraised {
        let uncancelled = Uncancelled::begin();
        let pending = filled(|set| {
            // SAFETY: writes one set.
            unsafe { libc::sigpending(set) };
        });
        // SAFETY: the set is one, and these are signals.
        let ours = set_of(|signal| unsafe { libc::sigismember(&pending, signal) } == 0);
        let all = set_of(|_| true);
        let before = filled(|before| {
            // SAFETY: reads one set and writes another.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &all, before) };
        });
        Unraised {
            before,
            ours,
            _uncancelled: uncancelled,
        }
    }
}

impl Drop for Unraised {
    fn drop(&mut self) {
        let now = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: reads a set and a time. Takes what is pending, and waits for nothing.
        while unsafe { libc::sigtimedwait(&self.ours, std::ptr::null_mut(), &now) } > 0 {}
        // SAFETY: the set that the thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// What a thread that runs into them is told by its own doing: blocked, they would end the process without the program's handler.
const OWN: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// Threads that the calling one starts while it has this are sent none of the process's signals: a program that blocks some and waits for
/// them would not get them, and its handlers would run in the middle of what ours do.
#[derive(Debug)]
pub struct Unsignalled(sigset_t);

impl Unsignalled {
    /// From now on.
    pub fn begin() -> Unsignalled {
        let mut all = filled(|set| {
            // SAFETY: writes one set.
            unsafe { libc::sigfillset(set) };
        });
        for signal in OWN {
            // SAFETY: the set is one, and this is a signal.
            unsafe { libc::sigdelset(&mut all, signal) };
        }
        Unsignalled(filled(|before| {
            // SAFETY: reads one set and writes another.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &all, before) };
        }))
    }
}

impl Drop for Unsignalled {
    fn drop(&mut self) {
        // SAFETY: the set that the thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// A set that is empty where `fill` does not fill it.
fn filled(fill: impl FnOnce(*mut sigset_t)) -> sigset_t {
    let mut set = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: makes an empty set of what is room for one.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    fill(set.as_mut_ptr());
    // SAFETY: made above.
    unsafe { set.assume_init() }
}

fn set_of(has: impl Fn(c_int) -> bool) -> sigset_t {
    filled(|set| {
        for signal in RAISED.into_iter().filter(|signal| has(*signal)) {
            // SAFETY: the set is one, and this is a signal.
            unsafe { libc::sigaddset(set, signal) };
        }
    })
}
