//! The CUDA driver's functions, found by name in its library.
//!
//! cudarc's own bindings are not used for these calls: they return a Rust enum, for which an error newer than the bindings
//! would be undefined behaviour, and they panic when a function is missing. Here an error is a number, and a missing
//! function is found when the device is opened. Signatures: `cuda.h`, CUDA 12.8.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::mem::transmute;
use std::ptr::NonNull;

use cudarc::driver::sys::CUdevice_attribute;

use super::library::Library;
use crate::error::DeviceError;

/// `CUmemLocation` with type `CU_MEM_LOCATION_TYPE_DEVICE`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Location {
    pub(super) kind: c_int,
    pub(super) id: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct AllocationProp {
    pub(super) kind: c_int,
    pub(super) handle_types: c_int,
    pub(super) location: Location,
    pub(super) win32_handle_meta_data: *mut c_void,
    pub(super) compression: u8,
    pub(super) gpu_direct_rdma: u8,
    pub(super) usage: u16,
    pub(super) reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessDesc {
    pub(super) location: Location,
    pub(super) flags: c_int,
}

/// `CUipcMemHandle`, which is passed as it is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct IpcHandle(pub(super) [u8; 64]);

/// `CUcontext`, `CUstream` and `CUevent` are opaque pointers.
pub(super) type Opaque = *mut c_void;

macro_rules! api {
    ($($field:ident = $symbol:literal ($($arg:ty),*);)* => $($newer:ident = $its:literal ($($its_arg:ty),*);)*) => {
        /// The functions, all of them present but for those that older drivers lack.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Api {
            $(pub(super) $field: unsafe extern "C" fn($($arg),*) -> c_int,)*
            $(pub(super) $newer: Option<unsafe extern "C" fn($($its_arg),*) -> c_int>,)*
        }

        impl Api {
            /// Finds the functions; the name of the first that is missing otherwise.
            pub(super) fn of(library: Library) -> Result<Api, &'static CStr> {
                Ok(Api {
                    $($field: {
                        let found = library.find($symbol).ok_or($symbol)?;
                        // SAFETY: the type is the function's signature in cuda.h.
                        unsafe { transmute::<NonNull<c_void>, unsafe extern "C" fn($($arg),*) -> c_int>(found) }
                    },)*
                    $($newer: library.find($its).map(|found| {
                        // SAFETY: as above.
                        unsafe { transmute::<NonNull<c_void>, unsafe extern "C" fn($($its_arg),*) -> c_int>(found) }
                    }),)*
                })
            }
        }
    };
}

api! {
    get_error_name = c"cuGetErrorName" (c_int, *mut *const c_char);
    get_error_string = c"cuGetErrorString" (c_int, *mut *const c_char);
    init = c"cuInit" (c_uint);
    device_get = c"cuDeviceGet" (*mut c_int, c_int);
    device_get_attribute = c"cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    device_get_name = c"cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_get_uuid = c"cuDeviceGetUuid" (*mut [u8; 16], c_int);
    device_total_mem = c"cuDeviceTotalMem_v2" (*mut usize, c_int);
    primary_ctx_retain = c"cuDevicePrimaryCtxRetain" (*mut Opaque, c_int);
    primary_ctx_release = c"cuDevicePrimaryCtxRelease_v2" (c_int);
    ctx_get_current = c"cuCtxGetCurrent" (*mut Opaque);
    ctx_set_current = c"cuCtxSetCurrent" (Opaque);
    ctx_synchronize = c"cuCtxSynchronize" ();
    can_access_peer = c"cuDeviceCanAccessPeer" (*mut c_int, c_int, c_int);
    mem_get_info = c"cuMemGetInfo_v2" (*mut usize, *mut usize);
    mem_alloc = c"cuMemAlloc_v2" (*mut u64, usize);
    mem_free = c"cuMemFree_v2" (u64);
    address_reserve = c"cuMemAddressReserve" (*mut u64, usize, usize, u64, c_ulonglong);
    address_free = c"cuMemAddressFree" (u64, usize);
    granularity = c"cuMemGetAllocationGranularity" (*mut usize, *const AllocationProp, c_int);
    create = c"cuMemCreate" (*mut u64, usize, *const AllocationProp, c_ulonglong);
    release = c"cuMemRelease" (u64);
    map = c"cuMemMap" (u64, usize, usize, u64, c_ulonglong);
    set_access = c"cuMemSetAccess" (u64, usize, *const AccessDesc, usize);
    unmap = c"cuMemUnmap" (u64, usize);
    export = c"cuMemExportToShareableHandle" (*mut c_void, u64, c_int, c_ulonglong);
    import = c"cuMemImportFromShareableHandle" (*mut u64, *mut c_void, c_int);
    ipc_get_handle = c"cuIpcGetMemHandle" (*mut [u8; 64], u64);
    ipc_open_handle = c"cuIpcOpenMemHandle_v2" (*mut u64, IpcHandle, c_uint);
    ipc_close_handle = c"cuIpcCloseMemHandle" (u64);
    stream_is_capturing = c"cuStreamIsCapturing" (Opaque, *mut c_int);
    stream_query = c"cuStreamQuery" (Opaque);
    stream_get_ctx = c"cuStreamGetCtx" (Opaque, *mut Opaque);
    event_create = c"cuEventCreate" (*mut Opaque, c_uint);
    event_record = c"cuEventRecord" (Opaque, Opaque);
    event_query = c"cuEventQuery" (Opaque);
    event_destroy = c"cuEventDestroy_v2" (Opaque);
    exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode" (*mut c_int);
    stream_synchronize = c"cuStreamSynchronize" (Opaque);
    copy_to_device = c"cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, Opaque);
    copy_to_host = c"cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, Opaque);
    fill_words = c"cuMemsetD32Async" (u64, c_uint, usize, Opaque);
    =>
    mem_alloc_managed = c"cuMemAllocManaged" (*mut u64, usize, c_uint);
    mem_prefetch = c"cuMemPrefetchAsync" (u64, usize, c_int, Opaque);
    mem_advise = c"cuMemAdvise" (u64, usize, c_int, c_int);
    // From CUDA 13.0 on (`cuda.h` of that version).
    mem_discard_batch = c"cuMemDiscardBatchAsync" (*mut u64, *mut usize, usize, c_ulonglong, Opaque);
    // From CUDA 12.0 and 12.5 on.
    stream_get_id = c"cuStreamGetId" (Opaque, *mut c_ulonglong);
    ctx_record_event = c"cuCtxRecordEvent" (Opaque, Opaque);
}

impl Api {
    /// Turns a call's result into ours.
    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), DeviceError> {
        if code == 0 {
            return Ok(());
        }
        Err(DeviceError {
            call,
            code,
            name: self.error_name(code),
        })
    }

    /// What a device can do.
    pub(super) fn attribute(&self, device: c_int, attribute: CUdevice_attribute) -> Result<c_int, DeviceError> {
        let mut value: c_int = 0;
        // SAFETY: writes one number.
        let code = unsafe { (self.device_get_attribute)(&mut value, attribute as c_int, device) };
        self.check("cuDeviceGetAttribute", code)?;
        Ok(value)
    }

    /// A device's name.
    pub(super) fn name(&self, device: c_int) -> Result<String, DeviceError> {
        let mut name = [0u8; 256];
        // SAFETY: writes a string that ends in a zero byte, of as many bytes at most.
        let code = unsafe { (self.device_get_name)(name.as_mut_ptr().cast(), name.len() as c_int, device) };
        self.check("cuDeviceGetName", code)?;
        let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    pub(super) fn uuid(&self, device: c_int) -> Result<[u8; 16], DeviceError> {
        let mut uuid = [0u8; 16];
        // SAFETY: writes 16 bytes.
        let code = unsafe { (self.device_get_uuid)(&mut uuid, device) };
        self.check("cuDeviceGetUuid", code)?;
        Ok(uuid)
    }

    /// Bytes of memory that a device has.
    pub(super) fn total(&self, device: c_int) -> Result<u64, DeviceError> {
        let mut bytes = 0usize;
        // SAFETY: writes one size.
        let code = unsafe { (self.device_total_mem)(&mut bytes, device) };
        self.check("cuDeviceTotalMem", code)?;
        Ok(bytes as u64)
    }

    fn error_name(&self, code: c_int) -> String {
        text_of(self.get_error_name, code).unwrap_or_else(|| "an error this driver has no name for".to_owned())
    }

    /// What the driver says about an error, if it knows it: "no CUDA-capable device is detected".
    pub(super) fn error_text(&self, code: c_int) -> Option<String> {
        text_of(self.get_error_string, code)
    }
}

/// An error's name or text by one of the driver's two functions.
fn text_of(of: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int, code: c_int) -> Option<String> {
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: both functions write one pointer, or leave it null for an error they do not know.
    let known = unsafe { of(code, &mut text) } == 0 && !text.is_null();
    // SAFETY: the driver's names and texts are static strings that end in a zero byte.
    known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
