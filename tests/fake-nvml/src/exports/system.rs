//! Initialisation, versions, error texts.

use std::ffi::{c_char, c_int, c_uint};
use std::time::Duration;

use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::nvmlReturn_t;

use super::{answering, code, put, put_text, say};
use crate::source;

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    code(source::world().and_then(|world| {
        say(&world);
        std::thread::sleep(Duration::from_millis(world.init_delay_ms));
        world.init
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    nvml::nvmlReturn_enum_NVML_SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    match result {
        nvml::nvmlReturn_enum_NVML_SUCCESS => c"The operation was successful",
        nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT => c"Invalid Argument",
        nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED => c"Not Supported",
        nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION => c"Insufficient Permissions",
        nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED => c"Driver Not Loaded",
        nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST => c"GPU is lost",
        nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED => c"GPU requires reset",
        nvml::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH => c"Driver/library version mismatch",
        _ => c"Unknown Error",
    }
    .as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    // SAFETY: NVML's contract: `version` holds `length` bytes.
    code(answering().and_then(|world| unsafe { put_text(version, length, world.driver.as_bytes()) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> nvmlReturn_t {
    // SAFETY: NVML's contract: `version` is null or valid.
    code(answering().and_then(|world| unsafe { put(version, world.cuda) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: NVML's contract: `count` is null or valid.
    code(answering().and_then(|world| unsafe { put(count, world.gpus.len() as c_uint) }))
}
