//! The function that replaces libc's.

use std::os::raw::{c_int, c_ulong, c_void};

use crate::{device, driver};

/// Answers requests on the fake driver's devices, and passes all others to the kernel.
///
/// # Safety
/// As the request demands.
pub unsafe fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let result = match device::of(fd) {
        Some((device, root)) => driver::answer(&root, device, fd, request as u32, argument as u64),
        // SAFETY: the caller's call, as it was.
        None => return unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int },
    };
    let Err(error) = result else { return 0 };
    // SAFETY: every thread has one.
    unsafe { *libc::__errno_location() = error.raw_os_error().unwrap_or(libc::EIO) };
    -1
}
