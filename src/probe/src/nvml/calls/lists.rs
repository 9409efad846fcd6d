//! The process lists. Their calls and records differ between driver versions.
//!
//! The wrapper's own calls are not used. They pass a buffer of 24-byte records, which the first R535 drivers overrun
//! with records of 32 bytes. They fail when more than five processes start between their two calls. They support
//! versions 3 and 2 only.

use std::ffi::c_void;

use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlReturn_t};

use super::{Calls, Code, Device, check};

/// A kind of process list.
#[derive(Clone, Copy)]
pub(in crate::nvml) enum List {
    Compute,
    Graphics,
    /// Clients of the Multi-Process Service. The wrapper's buffer has no space for a client that starts between its two
    /// calls.
    Mps,
}

/// Size of a process record in 64-bit words, by version of the list.
#[derive(Clone, Copy)]
pub(super) struct Records {
    /// Version 3: 3 words, or 4 on the first R535 drivers, which added a field.
    newest: usize,
}

/// Version 1, which has no instances, and version 2.
const WORDS_V1: usize = 2;
const WORDS_V2: usize = 3;

impl Records {
    /// Finds the record size of version 3. The first R535 drivers enlarged the record under the same name; later
    /// drivers went back and added the detail list instead. The functions that the library exports tell the two apart
    /// (nvitop uses the same test).
    pub(super) fn of(lib: &NvmlLib) -> Records {
        let large =
            lib.nvmlDeviceGetConfComputeMemSizeInfo.is_ok() && lib.nvmlDeviceGetRunningProcessDetailList.is_err();
        Records {
            newest: if large { 4 } else { WORDS_V2 },
        }
    }
}

/// A list function. The three versions differ in their records only.
#[derive(Clone, Copy)]
enum ListFn {
    V1(unsafe extern "C" fn(nvmlDevice_t, *mut u32, *mut nvmlProcessInfo_v1_t) -> nvmlReturn_t),
    V2(unsafe extern "C" fn(nvmlDevice_t, *mut u32, *mut nvmlProcessInfo_t) -> nvmlReturn_t),
}

impl Calls {
    /// Fills `buffer` with process records and returns how many there are and how many words each has. The buffer grows
    /// as needed. Drivers without version 3 of the call (before R510) are asked for version 2, and drivers without
    /// version 2 (before R460) for version 1.
    pub(in crate::nvml) fn processes(
        &self,
        device: &Device<'_>,
        list: List,
        buffer: &mut Vec<u64>,
    ) -> Result<(usize, usize), Code> {
        /// A longer list for one GPU is a broken answer.
        const MAX: usize = 1 << 16;
        let (function, words) = self.list_function(list)?;
        let mut room = (buffer.len() / words).max(32);
        for _ in 0..4 {
            buffer.resize(room * words, 0);
            let mut count = room as u32;
            let records = buffer.as_mut_ptr().cast::<c_void>();
            // SAFETY: the handle came from this library; the buffer has room for `count` records of this version of the
            // list in this driver, aligned to 8.
            let answer = unsafe {
                match function {
                    ListFn::V1(f) => f(device.handle(), &mut count, records.cast()),
                    ListFn::V2(f) => f(device.handle(), &mut count, records.cast()),
                }
            };
            match check(answer) {
                Ok(()) => return Ok(((count as usize).min(room), words)),
                // More processes may start before the next try.
                Err(Code::INSUFFICIENT_SIZE) => room = (count as usize).max(room).saturating_mul(2).min(MAX),
                Err(code) => return Err(code),
            }
        }
        Err(Code::INSUFFICIENT_SIZE)
    }

    /// Returns the newest version of a list that the driver has, and the size of its records in words.
    fn list_function(&self, list: List) -> Result<(ListFn, usize), Code> {
        let lib = self.nvml.lib();
        let (v3, v2, v1) = match list {
            List::Compute => (
                &lib.nvmlDeviceGetComputeRunningProcesses_v3,
                &lib.nvmlDeviceGetComputeRunningProcesses_v2,
                &lib.nvmlDeviceGetComputeRunningProcesses,
            ),
            List::Mps => (
                &lib.nvmlDeviceGetMPSComputeRunningProcesses_v3,
                &lib.nvmlDeviceGetMPSComputeRunningProcesses_v2,
                &lib.nvmlDeviceGetMPSComputeRunningProcesses,
            ),
            List::Graphics => (
                &lib.nvmlDeviceGetGraphicsRunningProcesses_v3,
                &lib.nvmlDeviceGetGraphicsRunningProcesses_v2,
                &lib.nvmlDeviceGetGraphicsRunningProcesses,
            ),
        };
        match (v3, v2, v1) {
            (Ok(f), _, _) => Ok((ListFn::V2(*f), self.records.newest)),
            (_, Ok(f), _) => Ok((ListFn::V2(*f), WORDS_V2)),
            (_, _, Ok(f)) => Ok((ListFn::V1(*f), WORDS_V1)),
            _ => Err(Code::FUNCTION_NOT_FOUND),
        }
    }
}
