//! The lists of processes, whose calls and records have changed from driver to driver.
//!
//! The wrapper's own calls are not used. They pass a buffer of 24-byte records, which the first R535 drivers overrun
//! with records of 32; they fail where more than five processes start between their two calls; and they know version 3
//! and 2 only.

use std::ffi::c_void;

use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlReturn_t};

use super::{Calls, Code, Device, check};

/// Which list of processes.
#[derive(Clone, Copy)]
pub(in crate::nvml) enum List {
    Compute,
    Graphics,
    /// Clients of the Multi-Process Service. The wrapper's call writes into a buffer without room for a client that
    /// starts meanwhile.
    Mps,
}

/// 64-bit words in a process record.
#[derive(Clone, Copy)]
pub(super) struct Records {
    /// Of version 3: 3, but 4 on the first R535 drivers, which put one more field into it.
    newest: usize,
}

/// Of version 1, without instances, and of version 2.
const WORDS_V1: usize = 2;
const WORDS_V2: usize = 3;

impl Records {
    /// The first drivers of R535 gave version 3 of the process lists a larger record, without a new name; the drivers
    /// after them went back and brought the detail list instead. The functions that come and go with it tell which is
    /// which (nvitop does it so).
    pub(super) fn of(lib: &NvmlLib) -> Records {
        let large =
            lib.nvmlDeviceGetConfComputeMemSizeInfo.is_ok() && lib.nvmlDeviceGetRunningProcessDetailList.is_err();
        Records {
            newest: if large { 4 } else { WORDS_V2 },
        }
    }
}

/// The three versions of a list differ in their records only.
#[derive(Clone, Copy)]
enum ListFn {
    V1(unsafe extern "C" fn(nvmlDevice_t, *mut u32, *mut nvmlProcessInfo_v1_t) -> nvmlReturn_t),
    V2(unsafe extern "C" fn(nvmlDevice_t, *mut u32, *mut nvmlProcessInfo_t) -> nvmlReturn_t),
}

impl Calls {
    /// Fills `buffer` with process records and returns how many there are and how many words each has. The buffer grows
    /// to what is needed; drivers without version 3 of the call (before R510) are asked for version 2, those without
    /// that (before R460) for version 1.
    pub(in crate::nvml) fn processes(
        &self,
        device: &Device<'_>,
        list: List,
        buffer: &mut Vec<u64>,
    ) -> Result<(usize, usize), Code> {
        /// More processes than this on one GPU is a broken answer.
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
                // More may start before the next try.
                Err(Code::INSUFFICIENT_SIZE) => room = (count as usize).max(room).saturating_mul(2).min(MAX),
                Err(code) => return Err(code),
            }
        }
        Err(Code::INSUFFICIENT_SIZE)
    }

    /// The newest version of a list that the driver has, and the words of its records.
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
