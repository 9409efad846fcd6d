//! A library to preload, which puts the fake driver in front of a program's `ioctl`. See `gpumem-fake-uvm`.
//!
//! It is a crate of its own so that the tests, which link `gpumem-fake-uvm`, keep libc's function.
#![allow(unsafe_code, reason = "it stands in for a function of libc")]

use std::os::raw::{c_int, c_ulong, c_void};

/// Replaces libc's `ioctl`. That is variadic, but the call is the same on x86-64 and arm64.
///
/// # Safety
/// As the request demands.
// SAFETY: the name is libc's on purpose.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's call, as it was.
    unsafe { gpumem_fake_uvm::ioctl(fd, request, argument) }
}
