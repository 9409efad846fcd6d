//! The last resort: restores the terminal when the program ends outside of our own code. That is a fatal signal (an allocation
//! that fails aborts, a timer expires, the driver crashes) or a library that calls `exit`.
#![allow(unsafe_code)]

use std::io::Write;
use std::os::raw::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{io, mem, ptr};

use super::Taken;

/// The terminal to restore; null while it is not taken over. The code that swaps the pointer out has to restore it.
static TAKEN: AtomicPtr<Taken> = AtomicPtr::new(ptr::null_mut());

/// Signals that end a program that does not handle them, except those of the main loop, and SIGPIPE, which Rust ignores.
/// Real-time signals are handled, too.
const FATAL: [c_int; 17] = [
    libc::SIGABRT,
    libc::SIGALRM,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGIO,
    libc::SIGPROF,
    libc::SIGPWR,
    libc::SIGSEGV,
    libc::SIGSTKFLT,
    libc::SIGSYS,
    libc::SIGTRAP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGVTALRM,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// Signals for which Rust has handlers, which report a stack overflow. They run after ours.
const OF_RUST: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
static BEFORE: OnceLock<Vec<(c_int, libc::sigaction)>> = OnceLock::new();

/// Installs the handlers that restore the terminal before a signal or a library ends the program. Call it once.
pub(super) fn install() {
    let known = OF_RUST.iter().filter_map(|&signal| Some((signal, action_of(signal)?)));
    let _ = BEFORE.set(known.collect());
    for signal in FATAL.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
        let handled = action_of(signal).is_none_or(|action| action.sa_sigaction != libc::SIG_DFL);
        if !handled || OF_RUST.contains(&signal) {
            handle(signal);
        }
    }
    // SAFETY: the function takes no arguments, returns nothing, and exists as long as the program.
    unsafe { libc::atexit(at_exit) };
}

/// Sets the terminal to restore.
pub(super) fn arm(taken: Taken) {
    drop(disarm());
    TAKEN.store(Box::into_raw(Box::new(taken)), Ordering::Release);
}

/// Checks whether there is a terminal to restore.
pub(super) fn armed() -> bool {
    !TAKEN.load(Ordering::Acquire).is_null()
}

/// Takes the terminal, which the caller has to restore. `None` if a signal was first, or nothing is armed.
pub(super) fn disarm() -> Option<Box<Taken>> {
    let taken = TAKEN.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: `arm` made the pointer from a box, and the swap makes this the only owner.
    (!taken.is_null()).then(|| unsafe { Box::from_raw(taken) })
}

/// Ends the program without running exit handlers. They would wait for the loader's lock, which a library that hangs while it
/// is loaded holds.
pub(super) fn exit_at_once(code: u8) -> ! {
    // SAFETY: it touches no memory of ours.
    unsafe { libc::_exit(c_int::from(code)) }
}

fn action_of(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: all zeroes is an action, and the call writes one.
    unsafe {
        let mut action = mem::zeroed::<libc::sigaction>();
        (libc::sigaction(signal, ptr::null(), &mut action) == 0).then_some(action)
    }
}

fn handle(signal: c_int) {
    // SAFETY: the handler has the signature that SA_SIGINFO requires and is async-signal-safe. It runs on the alternate stack
    // that Rust has set up, since the thread's own stack may have overflowed.
    unsafe {
        let mut action = mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        // Above all SIGTTOU, so that the mode can be set from the background.
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(signal, &action, ptr::null_mut());
    }
}

/// Restores the terminal, and lets the signal have its original effect.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    let taken = TAKEN.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: as in `disarm`. It is not freed, since the signal may have interrupted an allocation. The method only makes system
    // calls.
    if let Some(taken) = unsafe { taken.as_ref() } {
        taken.restore();
    }
    // SAFETY: with SA_SIGINFO the pointer is valid.
    let failed = unsafe { (*info).si_code } > 0;
    let before = BEFORE.get().into_iter().flatten().find(|known| known.0 == signal);
    match before.filter(|_| failed) {
        // The instruction runs and fails again, which calls Rust's handler.
        // SAFETY: it is the action that the signal had before ours.
        Some((_, action)) => unsafe { libc::sigaction(signal, action, ptr::null_mut()) },
        // SA_RESETHAND has restored the default action, which follows as soon as this returns.
        // SAFETY: it is the number of a valid signal.
        None => unsafe { libc::raise(signal) },
    };
}

/// Reports an exit that is not our own. Our own code restores the terminal before it exits.
extern "C" fn at_exit() {
    if super::leave() {
        // If stderr is closed, the message is lost.
        let _ = writeln!(
            io::stderr(),
            "gpumem-tui: a library that was loaded, such as the driver's, ended this program"
        );
    }
}
