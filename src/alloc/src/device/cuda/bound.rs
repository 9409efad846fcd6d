//! Whose context is current on a thread, and what it may do while a graph is captured: ours for the length of a call.
//!
//! The current context is what the CUDA runtime, and with it PyTorch, takes for the thread's current device. A block of one
//! device may be freed while another is current, so every call leaves it as it was, or says that it could not.
//!
//! While a graph is captured, in any thread and on any device, a thread in the usual mode ends the capture by asking how far an event or a
//! stream is, and by taking or giving back memory, for it might wait for what the graph does. In the relaxed mode the caller knows that it
//! does not, and only a wait for the device ends it, or a question about the stream that is captured (seen on an H100 with driver 580).

use std::ffi::c_int;

use super::Result;
use super::api::{Api, Opaque};
use crate::process::tell_trouble;

/// Puts the context that was current before back when it is dropped.
pub(super) struct Bound<'a> {
    api: &'a Api,
    /// `None` when there is nothing to put back.
    before: Option<Opaque>,
    /// The thread's capture mode before, if it was changed.
    mode: Option<c_int>,
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: c_int = 2;

impl<'a> Bound<'a> {
    /// Makes a context current, which outlives the guard.
    pub(super) fn to(api: &'a Api, context: Opaque) -> Result<Bound<'a>> {
        let mut bound = Bound {
            api,
            before: None,
            mode: None,
        };
        let before = current(api)?;
        if before != context {
            // SAFETY: the context lives; the caller's contract.
            let code = unsafe { (api.ctx_set_current)(context) };
            api.check("cuCtxSetCurrent", code)?;
            bound.before = Some(before);
        }
        let mut mode = RELAXED;
        // SAFETY: sets the calling thread's mode and writes what it was.
        let code = unsafe { (api.exchange_capture_mode)(&mut mode) };
        api.check("cuThreadExchangeStreamCaptureMode", code)?;
        bound.mode = Some(mode);
        Ok(bound)
    }

    /// Changes nothing now. Before the driver was initialised, no context was current.
    pub(super) fn as_it_is(api: &'a Api) -> Bound<'a> {
        Bound {
            api,
            before: Some(current(api).unwrap_or(std::ptr::null_mut())),
            mode: None,
        }
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        if let Some(mut mode) = self.mode {
            // SAFETY: the mode that the thread had.
            unsafe { (self.api.exchange_capture_mode)(&mut mode) };
        }
        if let Some(before) = self.before {
            put_back(self.api, before);
        }
    }
}

/// Puts the context that was [noted](Before::note) back when it is dropped: for what makes a context current by its end.
#[derive(Debug)]
pub(super) struct Before {
    api: Api,
    noted: Option<usize>,
}

impl Before {
    pub(super) fn new(api: Api) -> Before {
        Before { api, noted: None }
    }

    /// Notes what is current, unless it is what ends.
    pub(super) fn note(&mut self, ends: Opaque) {
        let current = current(&self.api).ok().filter(|current| *current != ends);
        self.noted = current.map(|current| current.expose_provenance());
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        if let Some(noted) = self.noted {
            put_back(&self.api, std::ptr::with_exposed_provenance_mut(noted));
        }
    }
}

/// Makes what was current before so again. Should it be gone by now, ours stays, which lives; that is told, for what the program does next it
/// would do on another device.
fn put_back(api: &Api, before: Opaque) {
    let attempt = || {
        // SAFETY: it was current on this thread a moment ago.
        api.check("cuCtxSetCurrent", unsafe { (api.ctx_set_current)(before) })
    };
    let Err(error) = attempt().or_else(|_| attempt()) else {
        return;
    };
    // Nothing has changed where the driver was never initialised, or has ended.
    if current(api).is_ok_and(|current| current != before) {
        tell_trouble(&format!(
            "the context that was current on a thread could not be put back, so that its current device may be another one now: {error}"
        ));
    }
}

/// The thread's context, null for none.
fn current(api: &Api) -> Result<Opaque> {
    let mut current: Opaque = std::ptr::null_mut();
    // SAFETY: writes one pointer.
    let code = unsafe { (api.ctx_get_current)(&mut current) };
    api.check("cuCtxGetCurrent", code)?;
    Ok(current)
}
