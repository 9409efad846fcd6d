//! The process lists, in the record sizes that drivers have used.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlProcessInfo_t, nvmlReturn_t};

use super::{answering, code, with_gpu};
use crate::world::{Answer, Process};

/// # Safety
/// NVML's contract: `count` is valid, and `infos` holds `*count` records (of 32 bytes where the scenario says so) or is
/// null with a `*count` of 0.
unsafe fn list(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
    wanted: fn(&Process) -> bool,
) -> nvmlReturn_t {
    let answer = || -> Answer {
        let size = answering()?.process_bytes;
        let processes: Vec<Process> = with_gpu(device, |gpu, mig| {
            gpu.processes?;
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
            let record = nvmlProcessInfo_t {
                pid: p.pid,
                usedGpuMemory: p.bytes,
                gpuInstanceId: p.instance,
                computeInstanceId: if p.instance == u32::MAX { u32::MAX } else { 0 },
            };
            // SAFETY: i < *count on entry, so the record lies within the array of this function's contract.
            unsafe { infos.byte_add(i * size).write(record) };
        }
        Ok(())
    };
    code(answer())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    // SAFETY: the contract is the same.
    unsafe { list(device, count, infos, |p| p.compute) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    // SAFETY: the contract is the same.
    unsafe { list(device, count, infos, |p| p.graphics) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    // SAFETY: the contract is the same.
    unsafe { list(device, count, infos, |p| p.compute) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v2(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    // SAFETY: the contract is the same.
    unsafe { list(device, count, infos, |p| p.graphics) }
}

/// Present since R535, where it tells the first drivers of that line (with large process records) from older ones.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetConfComputeMemSizeInfo() -> nvmlReturn_t {
    nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED
}

/// Present since the drivers of R535 that went back to small process records.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetRunningProcessDetailList() -> nvmlReturn_t {
    nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED
}
