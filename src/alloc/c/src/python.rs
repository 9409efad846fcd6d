//! Python's call stacks, by the functions of the process's CPython. A history asks at each allocation where the thread is, and code in
//! Python would take ten times as long to tell. What Python runs on the way is what a collection of its garbage runs, if one is due.

mod api;

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpumem::Stack;

use crate::boundary::enter;
use crate::failure::Failure;
use crate::library::Library;
use api::{Api, Locked, Owned};

/// Places that are kept. Programs that make code again and again would have all of it kept: beyond so many they begin anew, and the same
/// places have the same numbers.
const MOST: usize = 1 << 14;

/// What PyTorch runs between a module and its forward(), twice for each.
const BETWEEN: [&str; 2] = ["_call_impl", "_wrapped_call_impl"];

/// And what runs a module as a script.
const RUNPY: [&str; 2] = ["<frozen runpy>", "/runpy.py"];

/// The numbers of places by their code and instruction, 0 for those that are left out. Their code is kept: as long as it is, nothing else
/// has its address.
type Places = HashMap<(usize, c_int), u64>;

struct Python {
    api: Api,
    /// Of others no stack is taken.
    interpreter: usize,
    /// Whether stacks are of native functions where no Python runs.
    native: bool,
    places: Mutex<Places>,
}

impl Python {
    /// Where the calling thread is, as a source of stacks tells it.
    fn tell(&self, numbers: &mut [u64]) -> Option<usize> {
        let count = self.frames(numbers);
        (count > 0 || !self.native).then_some(count)
    }

    /// The innermost frame first: how many there are.
    fn frames(&self, numbers: &mut [u64]) -> usize {
        let Some(locked) = self.api.lock(self.interpreter) else {
            return 0;
        };
        let (mut next, mut count) = (locked.frame(), 0);
        while let Some(frame) = next
            && let Some(slot) = numbers.get_mut(count)
        {
            if let Some(code) = frame.code() {
                *slot = self.number(&locked, &frame, code);
                count += usize::from(*slot != 0);
            }
            next = frame.back();
        }
        count
    }

    fn number(&self, locked: &Locked<'_>, frame: &Owned<'_>, code: Owned<'_>) -> u64 {
        let place = (code.address(), frame.instruction());
        if let Some(number) = self.places().get(&place) {
            return *number;
        }
        // Not under a lock of ours: what is asked may run whatever the collector of garbage has to.
        let Some(number) = locked.trying(|| name(frame, &code)) else {
            return 0;
        };
        let mut places = self.places();
        let full = places.len() >= MOST;
        let all = if full {
            std::mem::take(&mut *places)
        } else {
            Places::new()
        };
        let before = places.insert(place, number);
        drop(places);
        // Another thread of an interpreter without a lock may have been here meanwhile, and keeps it.
        if before.is_none() {
            code.keep();
        }
        all.into_keys().for_each(|(code, _)| locked.drop_kept(code));
        number
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Python {
    /// Nobody tells anything by it any more: what it kept goes.
    fn drop(&mut self) {
        if let Some(locked) = self.api.lock(self.interpreter) {
            let places = std::mem::take(&mut *self.places());
            places.into_keys().for_each(|(code, _)| locked.drop_kept(code));
        }
    }
}

/// The number of a frame's place, 0 for what is left out; `None` where Python has no memory for its name.
fn name(frame: &Owned<'_>, code: &Owned<'_>) -> Option<u64> {
    let (short, file) = (code.text(c"co_name")?, code.text(c"co_filename")?);
    let left_out = BETWEEN.contains(&short.as_str()) || RUNPY.iter().any(|end| file.ends_with(end));
    if left_out {
        return Some(0);
    }
    // With the class, from 3.11 on.
    let name = code.text(c"co_qualname").unwrap_or(short);
    Some(Stack::name_frame(&name, &file, frame.line()))
}

/// # Safety
///
/// `python` is null, or a handle of dlopen's for a library that stays and has the functions of a CPython, which is there until this is
/// called with null.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_python_stacks(python: *mut c_void, native: c_int) -> c_int {
    enter("gpumem_python_stacks", -1, || {
        let Some(python) = NonNull::new(python) else {
            Stack::set_source(None);
            return Ok(0);
        };
        // SAFETY: the caller's contract.
        let python = unsafe { Library::of_handle(python) };
        let api = Api::find(&python)
            .ok_or_else(|| Failure::misuse("no functions of a Python from 3.9 on are found there"))?;
        let interpreter = api
            .interpreter()
            .ok_or_else(|| Failure::misuse("the thread that asks for Python's stacks has to be one of Python's"))?;
        let places = Mutex::default();
        let python = Python {
            api,
            interpreter,
            native: native != 0,
            places,
        };
        Stack::set_source(Some(Box::new(move |numbers| python.tell(numbers))));
        Ok(0)
    })
}
