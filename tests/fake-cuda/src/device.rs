//! Initialisation, devices, contexts, error names.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::state::call;
use crate::{code, put, result};

thread_local! {
    /// The current context: the device's ordinal + 1, 0 for none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The current context's device.
pub(crate) fn current() -> Result<i32, i32> {
    match CURRENT.with(Cell::get) {
        0 => Err(result::INVALID_CONTEXT),
        context => Ok(context as i32 - 1),
    }
}

/// `cuInit`
#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> c_int {
    call("cuInit", |state| match state.settings.init {
        result::SUCCESS => {
            state.initialized = true;
            Ok(())
        }
        error => Err(error),
    })
}

/// `cuDriverGetVersion`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    code(unsafe { put(version, 12_080) })
}

/// `cuDeviceGetCount`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    call("cuDeviceGetCount", |state| unsafe {
        put(count, state.settings.devices)
    })
}

/// `cuDeviceGet`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    call("cuDeviceGet", |state| {
        let found = state.device(ordinal)?;
        // SAFETY: the caller's contract.
        unsafe { put(device, found) }
    })
}

/// `cuDeviceGetName`
///
/// # Safety
///
/// As in the driver API: `name` is valid for writes of `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) -> c_int {
    call("cuDeviceGetName", |state| {
        state.device(device)?;
        let text = b"Fake GPU\0";
        if name.is_null() || (len as usize) < text.len() || len < 0 {
            return Err(result::INVALID_VALUE);
        }
        // SAFETY: `name` has room for `len` bytes, checked to be enough.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len()) };
        Ok(())
    })
}

/// `cuDeviceGetUuid_v2`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> c_int {
    call("cuDeviceGetUuid", |state| {
        let mut bytes = *b"fake-cuda-uuid\0\0";
        bytes[15] = state.device(device)? as u8;
        // SAFETY: the caller's contract.
        unsafe { put(uuid, bytes) }
    })
}

/// `cuDeviceGetUuid`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { cuDeviceGetUuid_v2(uuid, device) }
}

/// `cuDeviceTotalMem_v2`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> c_int {
    call("cuDeviceTotalMem", |state| {
        state.device(device)?;
        // SAFETY: the caller's contract.
        unsafe { put(bytes, state.settings.total as usize) }
    })
}

/// `cuDeviceGetAttribute`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
    const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
    const CONCURRENT_MANAGED_ACCESS: c_int = 89;
    const VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: c_int = 102;
    const HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: c_int = 103;
    const GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: c_int = 110;
    call("cuDeviceGetAttribute", |state| {
        state.device(device)?;
        let found = match attribute {
            COMPUTE_CAPABILITY_MAJOR => 9,
            CONCURRENT_MANAGED_ACCESS => 1,
            VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => c_int::from(state.settings.vmm),
            HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED => 1,
            GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED => c_int::from(state.settings.rdma),
            _ => 0,
        };
        // SAFETY: the caller's contract.
        unsafe { put(value, found) }
    })
}

/// `cuDeviceCanAccessPeer`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> c_int {
    call("cuDeviceCanAccessPeer", |state| {
        let others = state.device(device)? != state.device(peer)?;
        // SAFETY: the caller's contract.
        unsafe { put(can, c_int::from(others && state.settings.peers)) }
    })
}

/// `cuDevicePrimaryCtxRetain`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> c_int {
    call("cuDevicePrimaryCtxRetain", |state| {
        let device = state.device(device)?;
        state.retain_context(device);
        // SAFETY: the caller's contract.
        unsafe { put(context, std::ptr::without_provenance_mut(device as usize + 1)) }
    })
}

/// `cuDevicePrimaryCtxRelease_v2`
#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    call("cuDevicePrimaryCtxRelease", |state| state.release_context(device))
}

/// `cuCtxGetCurrent`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's contract.
    code(unsafe { put(context, std::ptr::without_provenance_mut(CURRENT.with(Cell::get))) })
}

/// `cuCtxSetCurrent`
#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    call("cuCtxSetCurrent", |state| {
        if !context.is_null() && !state.has_context(context.addr() as i32 - 1) {
            return Err(result::INVALID_CONTEXT);
        }
        CURRENT.with(|current| current.set(context.addr()));
        Ok(())
    })
}

/// `cuCtxSynchronize`
#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> c_int {
    call("cuCtxSynchronize", |state| {
        current()?;
        state.finish_all();
        Ok(())
    })
}

/// `cuGetErrorName`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: c_int, name: *mut *const c_char) -> c_int {
    let found = result::name(error).ok_or(result::INVALID_VALUE);
    // SAFETY: the caller's contract.
    code(found.and_then(|text| unsafe { put(name, text.as_ptr()) }))
}

/// `cuGetErrorString`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { cuGetErrorName(error, text) }
}
