//! The memory of the calling thread's stack.
#![allow(unsafe_code, reason = "the system tells it by C functions")]

use std::ops::Range;

/// From its lowest address to where it began; `None` where the system does not say. For a program's first thread this reads a file.
pub(in crate::stack) fn own() -> Option<Range<u64>> {
    let mut attributes = std::mem::MaybeUninit::uninit();
    let (mut start, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: fills them in, and they are given back.
    let found = unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let found = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut start, &raw mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        found
    };
    let start = start.addr() as u64;
    (found == 0).then_some(start..start.checked_add(size as u64)?)
}

/// What is left of it, in a thread whose stack this is: 0 in another one, and on a stack that is not the thread's.
pub(in crate::stack) fn left(own: &Range<u64>) -> u64 {
    let here = std::ptr::from_ref(&own).addr() as u64;
    if own.contains(&here) { here - own.start } else { 0 }
}
