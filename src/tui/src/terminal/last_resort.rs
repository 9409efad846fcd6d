//! The last resort: gives the terminal back where none of our own code is left to do it. A signal that ends the program comes
//! from anywhere (an allocation that fails aborts, somebody's timer runs out, the driver crashes), and a library that is loaded
//! may call `exit`.
#![allow(unsafe_code)]

use std::io::Write;
use std::os::raw::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{io, mem, ptr};

use super::Taken;

/// The terminal to give back; null while it is not taken. Whoever takes the pointer out gives the terminal back.
static TAKEN: AtomicPtr<Taken> = AtomicPtr::new(ptr::null_mut());

/// Signals that end a program which does not know them. Those that the main loop knows are not among them, nor SIGPIPE, which
/// Rust ignores; real-time signals are.
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

/// Where Rust tells of a stack that has overflowed: its own handlers of these, which are called after ours.
const OF_RUST: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
static BEFORE: OnceLock<Vec<(c_int, libc::sigaction)>> = OnceLock::new();

/// Has what was armed given back before a signal or a library ends the program. Call it once.
pub(super) fn install() {
    let known = OF_RUST.iter().filter_map(|&signal| Some((signal, action_of(signal)?)));
    let _ = BEFORE.set(known.collect());
    for signal in FATAL.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
        let handled = action_of(signal).is_none_or(|action| action.sa_sigaction != libc::SIG_DFL);
        if !handled || OF_RUST.contains(&signal) {
            handle(signal);
        }
    }
    // SAFETY: the function takes nothing, returns nothing, and is there as long as the program is.
    unsafe { libc::atexit(at_exit) };
}

/// From now on this is what is to be given back.
pub(super) fn arm(taken: Taken) {
    drop(disarm());
    TAKEN.store(Box::into_raw(Box::new(taken)), Ordering::Release);
}

/// Whether there is something to give back.
pub(super) fn armed() -> bool {
    !TAKEN.load(Ordering::Acquire).is_null()
}

/// What is to be given back, which is the caller's business now; `None` where a signal has come first.
pub(super) fn disarm() -> Option<Box<Taken>> {
    let taken = TAKEN.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: the pointer is a box's, by `arm`, and whoever takes it out of the static has it alone.
    (!taken.is_null()).then(|| unsafe { Box::from_raw(taken) })
}

/// Ends the program without what else is done at its end: a library that hangs while it is loaded holds up the loader, which
/// would wait for it.
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
    // SAFETY: the handler has the signature that SA_SIGINFO asks for, and does only what a signal's handler may. It runs on the
    // stack that Rust has put aside, for the thread's own may be what is used up.
    unsafe {
        let mut action = mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        // SIGTTOU above all: from the background, too, the mode is to be set.
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(signal, &action, ptr::null_mut());
    }
}

/// Gives the terminal back, and has the signal do what it would have done without us.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    let taken = TAKEN.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: as in `disarm`; but it is not freed, for the signal may have come in the middle of an allocation. What is called on
    // it makes system calls alone.
    if let Some(taken) = unsafe { taken.as_ref() } {
        taken.give_back();
    }
    // SAFETY: with SA_SIGINFO there is one.
    let failed = unsafe { (*info).si_code } > 0;
    let before = BEFORE.get().into_iter().flatten().find(|known| known.0 == signal);
    match before.filter(|_| failed) {
        // The instruction is tried again, fails again, and Rust may have a word to say of that.
        // SAFETY: it is the action that was the signal's before ours.
        Some((_, action)) => unsafe { libc::sigaction(signal, action, ptr::null_mut()) },
        // Its default action is back, and is done as soon as this returns.
        // SAFETY: a number that was a signal's a moment ago.
        None => unsafe { libc::raise(signal) },
    };
}

/// All our own ways out give the terminal back first.
extern "C" fn at_exit() {
    if super::leave() {
        // When stderr is closed there is nobody left to tell.
        let _ = writeln!(
            io::stderr(),
            "gpumem-tui: a library that was loaded, such as the driver's, ended this program"
        );
    }
}
