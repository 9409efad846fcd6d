//! As much of CPython's C API as it takes: functions that 3.9 has, and `PyFrame_GetLasti` where there is one (3.11).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use crate::library::Library;

/// `PyObject`
pub(super) type Object = c_void;

/// Functions of the process's CPython.
#[derive(Clone, Copy)]
pub(super) struct Api {
    mine: unsafe extern "C" fn() -> *mut c_void,
    current: unsafe extern "C" fn() -> *mut c_void,
    check: unsafe extern "C" fn() -> c_int,
    interpreter: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    attach: unsafe extern "C" fn(*mut c_void),
    detach: unsafe extern "C" fn() -> *mut c_void,
    frame: unsafe extern "C" fn() -> *mut Object,
    back: unsafe extern "C" fn(*mut Object) -> *mut Object,
    code: unsafe extern "C" fn(*mut Object) -> *mut Object,
    line: unsafe extern "C" fn(*mut Object) -> c_int,
    instruction: unsafe extern "C" fn(*mut Object) -> c_int,
    inc_ref: unsafe extern "C" fn(*mut Object),
    dec_ref: unsafe extern "C" fn(*mut Object),
    attribute: unsafe extern "C" fn(*mut Object, *const c_char) -> *mut Object,
    encoded: unsafe extern "C" fn(*mut Object, *const c_char, *const c_char) -> *mut Object,
    bytes: unsafe extern "C" fn(*mut Object, *mut *mut c_char, *mut isize) -> c_int,
    fetch_error: unsafe extern "C" fn(*mut *mut Object, *mut *mut Object, *mut *mut Object),
    restore_error: unsafe extern "C" fn(*mut Object, *mut Object, *mut Object),
}

/// The interpreter's lock, of the calling thread.
pub(super) struct Locked<'a> {
    api: &'a Api,
    /// Whether the thread had it before.
    had: bool,
}

/// A reference to an object that counts, of who has the lock.
pub(super) struct Owned<'a> {
    object: NonNull<Object>,
    by: &'a Locked<'a>,
}

impl Api {
    /// `None` where one of them is missing, as in Python 3.8.
    pub(super) fn find(python: &Library) -> Option<Api> {
        // SAFETY: functions that CPython declares with the types that the fields have.
        unsafe {
            let line = python.function(c"PyFrame_GetLineNumber")?;
            Some(Api {
                mine: python.function(c"PyGILState_GetThisThreadState")?,
                current: python
                    .function(c"PyThreadState_GetUnchecked")
                    .or_else(|| python.function(c"_PyThreadState_UncheckedGet"))?,
                check: python.function(c"PyGILState_Check")?,
                interpreter: python.function(c"PyThreadState_GetInterpreter")?,
                attach: python.function(c"PyEval_RestoreThread")?,
                detach: python.function(c"PyEval_SaveThread")?,
                frame: python.function(c"PyEval_GetFrame")?,
                back: python.function(c"PyFrame_GetBack")?,
                code: python.function(c"PyFrame_GetCode")?,
                line,
                instruction: python.function(c"PyFrame_GetLasti").unwrap_or(line),
                inc_ref: python.function(c"Py_IncRef")?,
                dec_ref: python.function(c"Py_DecRef")?,
                attribute: python.function(c"PyObject_GetAttrString")?,
                encoded: python.function(c"PyUnicode_AsEncodedString")?,
                bytes: python.function(c"PyBytes_AsStringAndSize")?,
                fetch_error: python.function(c"PyErr_Fetch")?,
                restore_error: python.function(c"PyErr_Restore")?,
            })
        }
    }

    /// The interpreter that the calling thread runs, or has run.
    pub(super) fn interpreter(&self) -> Option<usize> {
        // SAFETY: asks what the thread itself noted.
        let mine = NonNull::new(unsafe { (self.mine)() })?;
        // SAFETY: the thread's own state, in which it does not change.
        Some(unsafe { (self.interpreter)(mine.as_ptr()) }.addr())
    }

    /// Waits for the lock of an interpreter, in a thread that has run it: in another one there is nothing to see. A thread that is about to
    /// give up its state may come here, too, and is not counted as one that uses it once more. `None` also from the first subinterpreter on,
    /// where the thread does not have the lock: whether it has that one's cannot be told.
    pub(super) fn lock(&self, interpreter: usize) -> Option<Locked<'_>> {
        if self.interpreter()? != interpreter {
            return None;
        }
        // SAFETY: asks what the thread itself noted, and which state is current: before 3.12 that is another thread's if this one has not the
        // lock.
        let (mine, current) = unsafe { ((self.mine)(), (self.current)()) };
        let had = current == mine;
        if !had {
            // SAFETY: asks for no more than that. Where there are subinterpreters the answer is always yes.
            if unsafe { (self.check)() } != 0 {
                return None;
            }
            // SAFETY: its own state, which nobody uses. The interpreter is there, as who began this ends it before.
            unsafe { (self.attach)(mine) };
        }
        Some(Locked { api: self, had })
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if !self.had {
            // SAFETY: as it was found.
            unsafe { (self.api.detach)() };
        }
    }
}

impl Locked<'_> {
    /// The frame that the thread is in.
    pub(super) fn frame(&self) -> Option<Owned<'_>> {
        // SAFETY: under the lock; what it returns is borrowed from the thread, and counted once more here.
        let frame = NonNull::new(unsafe { (self.api.frame)() })?;
        // SAFETY: an object.
        unsafe { (self.api.inc_ref)(frame.as_ptr()) };
        Some(self.owned(frame))
    }

    fn owned(&self, object: NonNull<Object>) -> Owned<'_> {
        Owned { object, by: self }
    }

    /// Does what may fail, so that what the thread was failing with stays.
    pub(super) fn trying<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut before = [null_mut(); 3];
        let [kind, value, traceback] = &mut before;
        // SAFETY: under the lock; they are written to, or stay null.
        unsafe { (self.api.fetch_error)(kind, value, traceback) };
        let result = work();
        // SAFETY: as they were found. What it failed with now is dropped.
        unsafe { (self.api.restore_error)(before[0], before[1], before[2]) };
        result
    }

    /// Lets go of an object that [`keep`](Owned::keep) kept.
    pub(super) fn drop_kept(&self, kept: usize) {
        // SAFETY: a reference that counts.
        unsafe { (self.api.dec_ref)(std::ptr::with_exposed_provenance_mut(kept)) };
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: a reference that counts, under the lock.
        unsafe { (self.by.api.dec_ref)(self.object.as_ptr()) };
    }
}

impl<'a> Owned<'a> {
    /// Of a frame: the one that called it.
    pub(super) fn back(&self) -> Option<Owned<'a>> {
        // SAFETY: a frame; what comes back counts.
        NonNull::new(unsafe { (self.by.api.back)(self.object.as_ptr()) }).map(|back| self.by.owned(back))
    }

    /// Of a frame: its code.
    pub(super) fn code(&self) -> Option<Owned<'a>> {
        // SAFETY: a frame; what comes back counts.
        NonNull::new(unsafe { (self.by.api.code)(self.object.as_ptr()) }).map(|code| self.by.owned(code))
    }

    /// Of a frame: which instruction it is at, or before 3.11 which line.
    pub(super) fn instruction(&self) -> c_int {
        // SAFETY: a frame.
        unsafe { (self.by.api.instruction)(self.object.as_ptr()) }
    }

    /// Of a frame: its line, 0 for none.
    pub(super) fn line(&self) -> u32 {
        // SAFETY: a frame.
        u32::try_from(unsafe { (self.by.api.line)(self.object.as_ptr()) }).unwrap_or(0)
    }

    /// An attribute that is text. What is no UTF-8 in it are question marks.
    pub(super) fn text(&self, name: &CStr) -> Option<String> {
        let api = self.by.api;
        // SAFETY: an object and a name; what comes back counts.
        let attribute = NonNull::new(unsafe { (api.attribute)(self.object.as_ptr(), name.as_ptr()) })?;
        let attribute = self.by.owned(attribute);
        let (encoding, errors) = (c"utf-8".as_ptr(), c"replace".as_ptr());
        // SAFETY: an object, which says if it is no text; what comes back counts.
        let encoded = NonNull::new(unsafe { (api.encoded)(attribute.object.as_ptr(), encoding, errors) })?;
        let encoded = self.by.owned(encoded);
        let (mut text, mut length) = (null_mut(), 0);
        // SAFETY: an object, which says if it has no bytes; both are written.
        if unsafe { (api.bytes)(encoded.object.as_ptr(), &raw mut text, &raw mut length) } != 0 {
            return None;
        }
        // SAFETY: so many bytes, which the object has as long as it is there.
        let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), usize::try_from(length).ok()?) };
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    pub(super) fn address(&self) -> usize {
        self.object.addr().get()
    }

    /// It stays until [`drop_kept`](Locked::drop_kept).
    pub(super) fn keep(self) -> usize {
        let kept = self.object.as_ptr().expose_provenance();
        std::mem::forget(self);
        kept
    }
}
