//! The lists of processes, whose calls and records have changed from driver to driver.

use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t, nvmlProcessInfo_t, nvmlReturn_t};

use super::{Calls, Code, Device, check, symbol};

/// Which list of processes.
#[derive(Clone, Copy)]
pub(in crate::nvml) enum List {
    Compute,
    Graphics,
}

type ListFn = unsafe extern "C" fn(nvmlDevice_t, *mut u32, *mut nvmlProcessInfo_t) -> nvmlReturn_t;

impl Calls {
    /// Fills `buffer` with process records and returns how many there are and how many words each has. The buffer grows
    /// to what is needed; drivers without version 3 of the call (before R510) are asked for version 2, whose records
    /// are the same.
    pub(in crate::nvml) fn processes(
        &self,
        device: Device,
        list: List,
        buffer: &mut Vec<u64>,
    ) -> Result<(usize, usize), Code> {
        /// More processes than this on one GPU is a broken answer.
        const MAX: usize = 1 << 16;
        let f = self.list_function(list)?;
        let mut room = (buffer.len() / self.process_words).max(32);
        for _ in 0..4 {
            buffer.resize(room * self.process_words, 0);
            let mut count = room as u32;
            // SAFETY: the handle came from this library; the buffer has room for `count` records of this driver's size,
            // aligned to 8.
            match check(unsafe { f(device.0, &mut count, buffer.as_mut_ptr().cast()) }) {
                Ok(()) => return Ok(((count as usize).min(room), self.process_words)),
                // More may start before the next try.
                Err(Code::INSUFFICIENT_SIZE) => room = (count as usize).max(room).saturating_mul(2).min(MAX),
                Err(code) => return Err(code),
            }
        }
        Err(Code::INSUFFICIENT_SIZE)
    }

    fn list_function(&self, list: List) -> Result<ListFn, Code> {
        let (newest, older): (_, &[u8]) = match list {
            List::Compute => (
                symbol(&self.lib.nvmlDeviceGetComputeRunningProcesses_v3),
                b"nvmlDeviceGetComputeRunningProcesses_v2\0",
            ),
            List::Graphics => (
                symbol(&self.lib.nvmlDeviceGetGraphicsRunningProcesses_v3),
                b"nvmlDeviceGetGraphicsRunningProcesses_v2\0",
            ),
        };
        newest.or_else(|code| {
            // SAFETY: nvml.h gives version 2 the same signature and record.
            unsafe { self.lib.__library.get::<ListFn>(older) }
                .map(|f| *f)
                .map_err(|_| code)
        })
    }
}

/// The first drivers of R535 gave version 3 of the process lists a larger record, without a new name; the drivers after
/// them went back and brought the detail list instead. The functions that come and go with it tell which is which
/// (nvitop does it so).
pub(super) fn process_words(lib: &NvmlLib) -> usize {
    // SAFETY: the symbols are only looked for, never called.
    let has = |name: &[u8]| unsafe { lib.__library.get::<unsafe extern "C" fn()>(name) }.is_ok();
    let large = has(b"nvmlDeviceGetConfComputeMemSizeInfo\0") && !has(b"nvmlDeviceGetRunningProcessDetailList\0");
    if large { 4 } else { 3 }
}
