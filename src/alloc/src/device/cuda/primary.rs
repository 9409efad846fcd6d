//! A device's primary context.

use std::ffi::c_int;

use super::api::{Api, Opaque};
use crate::error::DeviceError;

/// A primary context, held so that it stays.
///
/// cudarc is not asked for it: it has undefined behaviour for an error that its enum does not know, and these calls are the ones that fail on
/// machines in trouble.
#[derive(Debug)]
pub(super) struct Primary {
    api: Api,
    device: c_int,
    /// The address of what the driver calls the context.
    context: usize,
}

impl Primary {
    /// Makes nothing current.
    pub(super) fn retain(api: Api, ordinal: u32) -> Result<Primary, DeviceError> {
        // SAFETY: takes no pointer; 0 is the only value that the flags have.
        api.check("cuInit", unsafe { (api.init)(0) })?;
        let mut device: c_int = 0;
        // SAFETY: writes one number. An ordinal that is too large for one is negative here, which is no device either.
        api.check("cuDeviceGet", unsafe {
            (api.device_get)(&mut device, ordinal as c_int)
        })?;
        let mut context: Opaque = std::ptr::null_mut();
        // SAFETY: writes one pointer; the device is the one found just now.
        let code = unsafe { (api.primary_ctx_retain)(&mut context, device) };
        api.check("cuDevicePrimaryCtxRetain", code)?;
        Ok(Primary {
            api,
            device,
            context: context.expose_provenance(),
        })
    }

    /// The driver's number of the device.
    pub(super) fn device(&self) -> c_int {
        self.device
    }

    pub(super) fn context(&self) -> Opaque {
        std::ptr::with_exposed_provenance_mut(self.context)
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: it was retained once for this. An error would only leave the context held, as it is for the process's life.
        unsafe { (self.api.primary_ctx_release)(self.device) };
    }
}
