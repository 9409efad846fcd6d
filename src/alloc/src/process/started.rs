//! Who started the process.
#![allow(
    unsafe_code,
    reason = "what the kernel tells a process at its start has no safe interface"
)]

use rustix::process::{getegid, geteuid, getgid, getuid};

/// Whether who started the process, and made its environment, may do less than it may (a set-uid program). Its users do not tell that for long:
/// many such programs become the one altogether as which they run. What the kernel said at the start stays, of files with capabilities, too.
pub(crate) fn started_by_another() -> bool {
    // SAFETY: reads what the C library keeps from the process's start.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    secure || getuid() != geteuid() || getgid() != getegid()
}
