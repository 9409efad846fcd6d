//! A libcuda.so for tests: the driver calls that gpumem uses, in host memory.
//!
//! Have this crate as a dev-dependency (cargo then builds the shared object too), [`install`] it into a folder, and start the
//! program under test with that folder as `LD_LIBRARY_PATH`: it finds devices, allocates, maps chunks into address ranges,
//! copies, uses the memory pool, shares memory with other processes, and waits for events, without a GPU. Device addresses are numbers
//! that only this library understands. Chunks keep their contents wherever they are mapped. Work is done at once. Kernels cannot be
//! loaded (`CUDA_ERROR_NOT_SUPPORTED`). What the real driver leaves undefined (freeing twice, unmapping half a mapping) is an error.
//!
//! The environment is read once. Set before the process starts:
//!
//! | variable | default | what |
//! |---|---|---|
//! | `FAKE_CUDA_TOTAL` | 8 GiB | bytes of memory of each device |
//! | `FAKE_CUDA_USED` | 0 | bytes that "other processes" use |
//! | `FAKE_CUDA_DEVICES` | 1 | devices |
//! | `FAKE_CUDA_INIT` | 0 | what `cuInit` returns (100: no device, 803: driver mismatch) |
//! | `FAKE_CUDA_VMM` | 1 | 0: the device cannot map memory into address ranges |
//! | `FAKE_CUDA_PEERS` | 1 | 0: no device can reach another one's memory |
//! | `FAKE_CUDA_RDMA` | 1 | 0: devices say that they have no memory that network cards reach; `cuMemCreate`, `cuMemMap` or `cuMemSetAccess`: devices say that they have, and that call refuses it |
//! | `FAKE_CUDA_EVENT_QUERIES` | 0 | how often `cuEventQuery` says "not ready" before an event is done; if ever, `cuStreamQuery` always does |
//! | `FAKE_CUDA_DEAD_STREAMS_KILL` | 0 | 1: a call with a handle that is not a stream, or no longer, ends the process, as the real driver does |
//! | `FAKE_CUDA_FAIL` | | `cuMemCreate:3`: the third call of that name returns `CUDA_ERROR_UNKNOWN`; `cuMemCreate:3:12345`: it returns 12345; `cuMemCreate:3:12345:2`: so does the next one |
//! | `FAKE_CUDA_WAIT` | | `cuMemFree:PATH`: calls of that name wait until the file PATH exists, at most 20 seconds, and create `PATH.waits` when they begin to wait; calls of other threads go on |
#![allow(unsafe_code, reason = "it plays a library with a C interface")]
#![allow(non_snake_case, reason = "the driver's names")]

mod device;
mod managed;
mod memory;
mod pool;
mod settings;
mod shared;
mod state;
mod stream;

use std::io;
use std::path::Path;

/// `CUresult` values.
mod result {
    pub(crate) const SUCCESS: i32 = 0;
    pub(crate) const INVALID_VALUE: i32 = 1;
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    pub(crate) const NOT_INITIALIZED: i32 = 3;
    pub(crate) const INVALID_DEVICE: i32 = 101;
    pub(crate) const INVALID_CONTEXT: i32 = 201;
    pub(crate) const INVALID_HANDLE: i32 = 400;
    pub(crate) const NOT_READY: i32 = 600;
    pub(crate) const ILLEGAL_ADDRESS: i32 = 700;
    pub(crate) const NOT_SUPPORTED: i32 = 801;
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: i32 = 900;
    pub(crate) const STREAM_CAPTURE_INVALIDATED: i32 = 901;
    pub(crate) const UNKNOWN: i32 = 999;

    /// Returns the driver's name of a result.
    pub(crate) fn name(code: i32) -> Option<&'static std::ffi::CStr> {
        Some(match code {
            SUCCESS => c"CUDA_SUCCESS",
            INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
            OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
            NOT_INITIALIZED => c"CUDA_ERROR_NOT_INITIALIZED",
            100 => c"CUDA_ERROR_NO_DEVICE",
            INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
            INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
            INVALID_HANDLE => c"CUDA_ERROR_INVALID_HANDLE",
            NOT_READY => c"CUDA_ERROR_NOT_READY",
            ILLEGAL_ADDRESS => c"CUDA_ERROR_ILLEGAL_ADDRESS",
            NOT_SUPPORTED => c"CUDA_ERROR_NOT_SUPPORTED",
            803 => c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            STREAM_CAPTURE_UNSUPPORTED => c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
            STREAM_CAPTURE_INVALIDATED => c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
            UNKNOWN => c"CUDA_ERROR_UNKNOWN",
            _ => return None,
        })
    }
}

const FILE: &str = "libgpumem_fake_cuda.so";

/// Puts the library into a folder, under the name that programs look for.
///
/// # Errors
/// If it is not beside the running program (the calling crate does not depend on this one), or cannot be copied.
pub fn install(folder: &Path) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let beside = program.parent().unwrap_or(Path::new("."));
    let places = [
        beside.join(FILE),
        beside.join("deps").join(FILE),
        beside.join("../deps").join(FILE),
    ];
    let found = places.iter().find(|place| place.is_file()).ok_or_else(|| {
        let why = format!(
            "{FILE} is not beside {}; depend on gpumem-fake-cuda to have it built",
            program.display()
        );
        io::Error::new(io::ErrorKind::NotFound, why)
    })?;
    std::fs::copy(found, folder.join("libcuda.so")).map(|_| ())
}

/// Converts a call's result to its return value.
fn code(result: Result<(), i32>) -> i32 {
    result.err().unwrap_or(result::SUCCESS)
}

/// Writes a result through a caller's pointer; a null pointer is an invalid value.
///
/// # Safety
///
/// `to` is null or valid for one write of `T`.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), i32> {
    if to.is_null() {
        return Err(result::INVALID_VALUE);
    }
    // SAFETY: not null, so valid by this function's contract.
    unsafe { to.write(value) };
    Ok(())
}
