//! Whose context is current on a thread: ours for the length of a call.
//!
//! The current context is what the CUDA runtime, and with it PyTorch, takes for the thread's current device. A block of one
//! device may be freed while another is current, so every call leaves it as it was.

use std::ffi::c_int;

use super::Result;
use super::api::{Api, Opaque};

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
        let before = current(api)?;
        if before == context {
            return Ok(Bound {
                api,
                before: None,
                mode: None,
            });
        }
        // SAFETY: the context lives; the caller's contract.
        let code = unsafe { (api.ctx_set_current)(context) };
        api.check("cuCtxSetCurrent", code)?;
        Ok(Bound {
            api,
            before: Some(before),
            mode: None,
        })
    }

    /// Changes nothing now. Before the driver was initialised, no context was current.
    pub(super) fn as_it_is(api: &'a Api) -> Bound<'a> {
        Bound {
            api,
            before: Some(current(api).unwrap_or(std::ptr::null_mut())),
            mode: None,
        }
    }

    /// The same where graphs are being captured. In the usual mode a call that takes memory ends a capture, for it might wait for what the
    /// graph does; in the relaxed one the caller knows that it does not.
    pub(super) fn relaxed(mut self) -> Result<Bound<'a>> {
        let mut mode = RELAXED;
        // SAFETY: sets the calling thread's mode and writes what it was.
        let code = unsafe { (self.api.exchange_capture_mode)(&mut mode) };
        self.api.check("cuThreadExchangeStreamCaptureMode", code)?;
        self.mode = Some(mode);
        Ok(self)
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        if let Some(mut mode) = self.mode {
            // SAFETY: the mode that the thread had.
            unsafe { (self.api.exchange_capture_mode)(&mut mode) };
        }
        if let Some(before) = self.before {
            // SAFETY: it was current on this thread a moment ago. Should it be gone by now, ours stays, which lives.
            unsafe { (self.api.ctx_set_current)(before) };
        }
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
