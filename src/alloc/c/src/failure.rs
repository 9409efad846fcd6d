//! What can go wrong, and who is told: the calling thread at any time, the program's log once per kind.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gpumem::{Error, ExportError};

use crate::{devices, exit};

/// What sort of failure it is: of each, the first is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The request does not fit.
    OutOfMemory,
    /// The caller passed something that cannot be meant.
    Misuse,
    /// No device, or the driver failed.
    Device,
    /// A file could not be written.
    File,
    /// The calling thread's context is another one now. What was asked for was done.
    Context,
    /// A forked child. Interpreters free what they inherited there: that is no news. All that is done about it needs no memory: in a child
    /// that the C library does not know of (`_Fork`) `malloc` may wait for a thread that is not there.
    Forked,
    /// PyTorch's version is one that is not known from inside, of which [`trust`](crate::trust) tells.
    Untried,
    /// A bug of ours.
    Internal,
}

const FORKED: &CStr =
    c"the process forked after it began to use the GPU, which CUDA does not survive: start workers with spawn";

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) text: Cow<'static, str>,
}

impl Failure {
    pub(crate) fn misuse(text: impl Into<Cow<'static, str>>) -> Failure {
        Failure {
            kind: Kind::Misuse,
            text: text.into(),
        }
    }

    /// With the words that programs look for which try again with less.
    pub(crate) fn in_pytorchs_words(self) -> Failure {
        match self.kind {
            Kind::OutOfMemory => Failure {
                text: format!("CUDA out of memory. {}", self.text).into(),
                ..self
            },
            _ => self,
        }
    }

    pub(crate) fn forked() -> Failure {
        Failure {
            kind: Kind::Forked,
            text: FORKED.to_string_lossy(),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let kind = match &error {
            Error::OutOfMemory(_) => Kind::OutOfMemory,
            Error::NoDevice { .. } | Error::Device(_) => Kind::Device,
            Error::Forked => return Failure::forked(),
            _ => Kind::Misuse,
        };
        Failure {
            kind,
            text: error.to_string().into(),
        }
    }
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Failure {
        match error {
            ExportError::Heap(error) => error.into(),
            // Of the file.
            _ => Failure {
                kind: Kind::File,
                text: error.to_string().into(),
            },
        }
    }
}

/// The messages of a thread.
#[derive(Default)]
struct Messages {
    /// Not yet asked for.
    latest: Option<CString>,
    /// The one last asked for: the caller may still look at it.
    shown: CString,
}

thread_local! {
    static MESSAGES: RefCell<Messages> = RefCell::default();
    /// Whether what was said last is [`FORKED`].
    static IS_FORKED: Cell<bool> = const { Cell::new(false) };
}

/// Failures so far, on all threads.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Kinds that were printed, a bit each.
static PRINTED: AtomicU32 = AtomicU32::new(0);

fn line(call: &str, failure: &Failure) -> String {
    format!("{call}: {}", failure.text)
}

fn c_string(line: &str) -> CString {
    CString::new(line.replace('\0', "")).unwrap_or_default()
}

/// What a failure says, as a thread's last message would: for threads that have no room for messages any more.
pub(crate) fn message(call: &str, failure: &Failure) -> CString {
    c_string(&line(call, failure))
}

/// Tells of a failure.
pub(crate) fn report(call: &str, failure: &Failure) {
    match failure.kind {
        Kind::Forked => {
            COUNT.fetch_add(1, Ordering::Relaxed);
            IS_FORKED.set(true);
        }
        Kind::Untried => note(&line(call, failure)),
        kind => tell(kind, &line(call, failure)),
    }
}

/// Tells of what went wrong beside what a call was to do.
pub(crate) fn beside(text: &str) {
    tell(Kind::Context, text);
}

fn tell(kind: Kind, line: &str) {
    let bit = 1 << kind as u32;
    let first = PRINTED.fetch_or(bit, Ordering::Relaxed) & bit == 0;
    if first && !devices::is_forked() && !exit::has_begun() {
        gpumem::say(&format!(
            "gpumem: {line}\ngpumem: (further errors of this kind: gpumem_last_error() only)"
        ));
    }
    note(line);
}

/// Counts it, and keeps it for who asks.
fn note(line: &str) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    // A thread that ends has no room for messages any more.
    let _ = MESSAGES.try_with(|messages| {
        if let Ok(mut messages) = messages.try_borrow_mut() {
            messages.latest = Some(c_string(line));
            IS_FORKED.set(false);
        }
    });
}

/// The calling thread's last message, once; null if there is none. It stays valid until the next call of this on the thread.
pub(crate) fn last() -> *const c_char {
    if IS_FORKED.replace(false) {
        return FORKED.as_ptr();
    }
    let take = |messages: &RefCell<Messages>| {
        let mut messages = messages.try_borrow_mut().ok()?;
        messages.shown = messages.latest.take()?;
        Some(messages.shown.as_ptr())
    };
    MESSAGES.try_with(take).ok().flatten().unwrap_or(std::ptr::null())
}

/// Failures so far, on all threads.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}
