//! MIG devices. The instance of the MIG device with index i has the id i + 1.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::{code, put, with_gpu};

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> nvmlReturn_t {
    code(with_gpu(device, |gpu, _| {
        let mode = c_uint::from(gpu.mig > 0);
        // SAFETY: NVML's contract: both are null or valid.
        unsafe { put(current, mode).and(put(pending, mode)) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: NVML's contract: `count` is null or valid.
    code(with_gpu(device, |_, _| unsafe { put(count, 7) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: nvmlDevice_t,
    index: c_uint,
    mig: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    code(with_gpu(device, |gpu, _| {
        if index >= gpu.mig {
            return Err(nvml::nvmlReturn_enum_NVML_ERROR_NOT_FOUND);
        }
        let handle = (device as usize & 0xffff) | ((index as usize + 1) << 16);
        // SAFETY: NVML's contract: `mig` is null or valid.
        unsafe { put(mig, handle as nvmlDevice_t) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t, id: *mut c_uint) -> nvmlReturn_t {
    code(with_gpu(device, |_, mig| {
        let mig = mig.ok_or(nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED)?;
        // SAFETY: NVML's contract: `id` is null or valid.
        unsafe { put(id, mig + 1) }
    }))
}
