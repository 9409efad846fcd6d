//! Has a running CPython execute a text, without its help: `ptrace(2)`, on x86-64.
//!
//! [`Attach::examine`] finds what is needed and why it cannot be done, without touching the process. [`Attach::inject`] stops the
//! process's main thread for a moment, has the text executed, and [`Attach::take_back`] takes back what it left. How, and what is written
//! where, is in `inject`. CPython 3.14 and newer can execute the text without a stop, which is in `remote`. The text must not take long:
//! the interpreter does nothing else meanwhile.

#[cfg(target_arch = "x86_64")]
mod inject;
#[cfg(not(target_arch = "x86_64"))]
mod other;
#[cfg(target_arch = "x86_64")]
mod remote;
#[cfg(target_arch = "x86_64")]
mod rights;
#[cfg(target_arch = "x86_64")]
mod sys;
#[cfg(target_arch = "x86_64")]
mod target;
#[cfg(target_arch = "x86_64")]
mod tracee;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub use other::{Attach, Injected};
#[cfg(target_arch = "x86_64")]
pub use {inject::Injected, x86_64::Attach};

/// How the text gets to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The main thread runs: the interpreter makes a pending call there.
    PendingCall,
    /// The main thread waits in a system call: another thread is started.
    Thread,
    /// The main thread runs, and its interpreter does this by itself: CPython 3.14 and newer (PEP 768).
    Remote,
}
