//! The process lists, in the record sizes that drivers have used.

use std::ffi::{c_uint, c_void};

use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlReturn_t};

use super::{answering, code, with_gpu};
use crate::world::{Answer, Process};

/// Selects a GPU's processes for a list.
type Wanted = fn(&Process) -> bool;

const COMPUTE: Wanted = |p| p.compute;
const GRAPHICS: Wanted = |p| p.graphics;
const MPS: Wanted = |p| p.mps;

/// Writes a list in records of `size` bytes.
///
/// # Safety
/// NVML's contract: `count` is valid, and `infos` holds `*count` records of `size` bytes or is null with a `*count` of
/// 0.
unsafe fn list(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut c_void,
    size: usize,
    wanted: Wanted,
) -> nvmlReturn_t {
    let answer = || -> Answer {
        let processes: Vec<Process> = with_gpu(device, |gpu, mig| {
            gpu.processes?;
            // With MIG on, the whole GPU's list is for administrators.
            if mig.is_none() {
                gpu.whole_list?;
            }
            let here = |p: &&Process| wanted(p) && mig.is_none_or(|i| p.instance == i + 1);
            Ok(gpu.process.iter().filter(here).copied().collect())
        })?;
        // SAFETY: `count` is null or valid by this function's contract.
        let Some(count) = (unsafe { count.as_mut() }) else {
            return Err(nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
        };
        let room = *count as usize;
        *count = processes.len() as c_uint;
        if room < processes.len() {
            return Err(nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
        }
        if infos.is_null() && !processes.is_empty() {
            return Err(nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
        }
        for (i, p) in processes.iter().enumerate() {
            // SAFETY: i < *count on entry, so the record lies within the array of this function's contract.
            let at = unsafe { infos.byte_add(i * size) };
            let compute_instance = if p.instance == u32::MAX { u32::MAX } else { 0 };
            // SAFETY: as above: what is written is at most `size` bytes.
            unsafe {
                if size == size_of::<nvmlProcessInfo_v1_t>() {
                    at.cast::<nvmlProcessInfo_v1_t>().write(nvmlProcessInfo_v1_t {
                        pid: p.pid,
                        usedGpuMemory: p.bytes,
                    });
                } else {
                    at.cast::<nvmlProcessInfo_t>().write(nvmlProcessInfo_t {
                        pid: p.pid,
                        usedGpuMemory: p.bytes,
                        gpuInstanceId: p.instance,
                        computeInstanceId: compute_instance,
                    });
                }
            }
        }
        Ok(())
    };
    code(answer())
}

/// Returns the bytes of a record of version 3.
fn newest() -> usize {
    answering().map_or(size_of::<nvmlProcessInfo_t>(), |world| world.process_bytes)
}

/// Exports one version of a list. All versions have NVML's contract.
macro_rules! export {
    ($($name:ident, $record:ty, $size:expr, $wanted:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: nvmlDevice_t, count: *mut c_uint, infos: *mut $record) -> nvmlReturn_t {
            // SAFETY: the contract is the same.
            unsafe { list(device, count, infos.cast(), $size, $wanted) }
        }
    )*};
}

export! {
    nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, newest(), COMPUTE;
    nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t, size_of::<nvmlProcessInfo_t>(), COMPUTE;
    nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, size_of::<nvmlProcessInfo_v1_t>(), COMPUTE;
    nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, newest(), GRAPHICS;
    nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t, size_of::<nvmlProcessInfo_t>(), GRAPHICS;
    nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, size_of::<nvmlProcessInfo_v1_t>(), GRAPHICS;
    nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, newest(), MPS;
    nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t, size_of::<nvmlProcessInfo_t>(), MPS;
    nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, size_of::<nvmlProcessInfo_v1_t>(), MPS;
}

/// Exists since R535, and tells the first drivers of that series (with large process records) from older ones.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetConfComputeMemSizeInfo() -> nvmlReturn_t {
    nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED
}

/// Exists since the drivers of R535 that went back to small process records.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetRunningProcessDetailList() -> nvmlReturn_t {
    nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED
}
