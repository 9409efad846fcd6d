//! The library that puts the fake driver in front of a program's `ioctl`: see `gpumem-fake-uvm`.
//!
//! It is a crate of its own so that the programs that use the other one, the tests, keep libc's function.
#![allow(unsafe_code, reason = "it stands in for a function of libc")]

use std::os::raw::{c_int, c_ulong, c_void};

/// libc's `ioctl` takes its third argument through an ellipsis; on x86-64 and arm64 the call is the same without.
///
/// # Safety
/// As the request demands.
// SAFETY: the name is libc's on purpose.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's call, as it was.
    unsafe { gpumem_fake_uvm::ioctl(fd, request, argument) }
}
