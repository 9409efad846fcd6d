//! The way in and out. Every function of the ABI does its work in here.

use std::any::Any;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gpumem::Uncancelled;

use crate::failure::{self, Failure, Kind};

/// Does the work of `call`. If it fails the caller gets `failed`, and a message. The thread is not ended in the middle.
pub(crate) fn enter<R: Copy>(call: &'static str, failed: R, work: impl FnOnce() -> Result<R, Failure>) -> R {
    let _undisturbed = Uncancelled::begin();
    enter_quick(call, failed, work)
}

/// The same for work of nanoseconds, which sees to that itself where it takes longer.
#[inline]
pub(crate) fn enter_quick<R: Copy>(call: &'static str, failed: R, work: impl FnOnce() -> Result<R, Failure>) -> R {
    attempt(call, work).unwrap_or(failed)
}

/// [`enter_quick`] for a caller that does more about a failure than to tell of it, which is done here.
#[inline]
pub(crate) fn attempt<R>(call: &'static str, work: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    // What a panic leaves behind is as it was or counted as lost: the allocator's lock is made for that.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(failure)) => Err(told(call, failure)),
        Err(panic) => Err(told(call, bug(panic))),
    }
}

/// Writes what fits of a text, and a zero byte; the bytes of all of it.
///
/// # Safety
///
/// `to` is valid for writes of `room` bytes, or null.
pub(crate) unsafe fn write(text: &str, to: *mut c_char, room: usize) -> Result<i64, Failure> {
    // What ends a string is in no text of a string.
    let text = text.replace('\0', "");
    if let Some(room) = room.checked_sub(1) {
        if to.is_null() {
            return Err(Failure::misuse(format!(
                "no buffer was given, with room for {} bytes",
                room + 1
            )));
        }
        let fits = text.floor_char_boundary(room);
        // SAFETY: not null, so there is room for `fits` bytes, at most `room`, and one more; nobody else has our text.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), fits);
            to.add(fits).write(0);
        }
    }
    Ok(i64::try_from(text.len()).unwrap_or(i64::MAX))
}

#[cold]
fn told(call: &'static str, failure: Failure) -> Failure {
    let _undisturbed = Uncancelled::begin();
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| failure::report(call, &failure))) {
        std::mem::forget(panic);
    }
    failure
}

#[cold]
fn bug(panic: Box<dyn Any + Send>) -> Failure {
    let said = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    let text = format!("a bug in gpumem, please report it: {said}");
    // Dropping it could panic again.
    std::mem::forget(panic);
    Failure {
        kind: Kind::Internal,
        text: text.into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used)]

    use std::ffi::CStr;

    use super::*;

    fn told() -> String {
        // SAFETY: a message was left just now; it lives until the next call on this thread.
        let text = unsafe { CStr::from_ptr(failure::last()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn no_panic_passes() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropping it is one more");
            }
        }
        let count = failure::count();
        assert_eq!(enter("gpumem_x", -1, || panic!("the number is {}", 7)), -1);
        assert_eq!(told(), "gpumem_x: a bug in gpumem, please report it: the number is 7");
        assert_eq!(enter("gpumem_x", -1, || panic!("plain")), -1);
        assert_eq!(told(), "gpumem_x: a bug in gpumem, please report it: plain");
        assert_eq!(enter("gpumem_x", -1, || std::panic::panic_any(Bomb)), -1);
        assert!(told().ends_with("no message"));
        assert!(failure::count() >= count + 3);
        assert_eq!(enter("gpumem_x", -1, || Ok(5)), 5);
        assert!(failure::last().is_null());
    }

    #[test]
    fn a_zero_byte_in_a_message_does_not_cut_it() {
        enter("gpumem_x", (), || Err(Failure::misuse("one\0two")));
        assert_eq!(told(), "gpumem_x: onetwo");
    }
}
