//! What happened, who holds the memory, and snapshots.

use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;

use gpumem::{History, Stack, StackSource, Stacks};

use crate::boundary::{enter, write};
use crate::devices;
use crate::failure::Failure;

#[unsafe(no_mangle)]
extern "C" fn gpumem_record_history(device: c_int, stacks: c_int, max_events: u64) -> c_int {
    enter("gpumem_record_history", -1, || {
        // `enum gpumem_stacks`
        let stacks = match stacks {
            0 => Stacks::None,
            1 => Stacks::Alloc,
            2 => Stacks::All,
            other => return Err(Failure::misuse(format!("{other} is no value of enum gpumem_stacks"))),
        };
        let max_events = usize::try_from(max_events).unwrap_or(usize::MAX);
        record(device, History::On { max_events, stacks })
    })
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_stop_history(device: c_int) -> c_int {
    enter("gpumem_stop_history", -1, || record(device, History::Off))
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_has_history(device: c_int) -> c_int {
    enter("gpumem_has_history", -1, || {
        let on = devices::chosen(device)?.any(|allocator| allocator.history().is_some());
        Ok(c_int::from(on))
    })
}

/// Begins or ends the history of one device, whose allocator is made for that, or of all that are in use (-1). An error on one does not
/// keep it from the others.
fn record(device: c_int, history: History) -> Result<c_int, Failure> {
    if device != -1 && history != History::Off {
        devices::place(device)?.open(device)?;
    }
    let mut result = Ok(0);
    for allocator in devices::chosen(device)? {
        if let Err(error) = allocator.record_history(history) {
            result = Err(error.into());
        }
    }
    result
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_step() -> c_int {
    enter("gpumem_step", -1, || {
        devices::chosen(-1)?.for_each(gpumem::Allocator::step);
        Ok(0)
    })
}

/// # Safety
///
/// `text` is valid for writes of `room` bytes, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_peak_report(device: c_int, text: *mut c_char, room: usize) -> i64 {
    enter("gpumem_peak_report", -1, || {
        let report = devices::used(device)?.peak();
        // SAFETY: the caller's contract.
        unsafe { tell(report, text, room) }
    })
}

/// # Safety
///
/// `text` is valid for writes of `room` bytes, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_leak_report(device: c_int, min_steps: u64, text: *mut c_char, room: usize) -> i64 {
    enter("gpumem_leak_report", -1, || {
        let report = devices::used(device)?.leaks(min_steps);
        // SAFETY: the caller's contract.
        unsafe { tell(report, text, room) }
    })
}

/// Writes a report, if there is one.
///
/// # Safety
///
/// `to` is valid for writes of `room` bytes, or null.
unsafe fn tell(report: Option<impl Display>, to: *mut c_char, room: usize) -> Result<i64, Failure> {
    let Some(report) = report else {
        return Err(Failure::misuse(
            "no history is recorded: gpumem_record_history begins one",
        ));
    };
    // SAFETY: the caller's contract.
    unsafe { write(&report.to_string(), to, room) }
}

/// # Safety
///
/// `path` is null or points to a string that ends in a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_snapshot(device: c_int, path: *const c_char) -> c_int {
    enter("gpumem_snapshot", -1, || {
        if path.is_null() {
            return Err(Failure::misuse("no path was given"));
        }
        // SAFETY: not null, so a C string by the caller's contract.
        let path = unsafe { CStr::from_ptr(path) };
        devices::used(device)?.write_snapshot(OsStr::from_bytes(path.to_bytes()))?;
        Ok(0)
    })
}

/// # Safety
///
/// `function` and `file` are null or point to strings that end in a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_name_frame(function: *const c_char, file: *const c_char, line: c_int) -> u64 {
    enter("gpumem_name_frame", 0, || {
        let text = |text: *const c_char| match text.is_null() {
            true => Cow::default(),
            // SAFETY: not null, so a C string by the caller's contract.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy(),
        };
        Ok(Stack::name_frame(
            &text(function),
            &text(file),
            line.try_into().unwrap_or(0),
        ))
    })
}

type StackFn = unsafe extern "C" fn(*mut u64, c_int) -> c_int;

/// # Safety
///
/// The function may be called on any thread until this is called again, and writes as many words to the array that it is given as it may at
/// most.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_set_stack_fn(function: Option<StackFn>) {
    enter("gpumem_set_stack_fn", (), || {
        let source = |function| -> StackSource { Box::new(move |numbers| frames_by(function, numbers)) };
        Stack::set_source(function.map(source));
        Ok(())
    });
}

fn frames_by(function: StackFn, numbers: &mut [u64]) -> Option<usize> {
    let most = c_int::try_from(numbers.len()).unwrap_or(c_int::MAX);
    // SAFETY: the contract of gpumem_set_stack_fn; there are so many words.
    let count = unsafe { function(numbers.as_mut_ptr(), most) };
    (count != 0).then(|| usize::try_from(count).unwrap_or(0))
}
