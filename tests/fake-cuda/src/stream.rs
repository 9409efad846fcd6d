//! Streams, events, and the calls for kernels, which always fail.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::state::call;
use crate::{put, result};

thread_local! {
    /// The thread's capture mode: `CU_STREAM_CAPTURE_MODE_GLOBAL` at first.
    static MODE: Cell<c_int> = const { Cell::new(0) };
}

/// Returns whether the thread's capture mode is relaxed, so that it may make calls that could wait for a capture.
pub(crate) fn relaxed() -> bool {
    const RELAXED: c_int = 2;
    MODE.get() == RELAXED
}

/// `cuStreamCreate`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut u64, _flags: c_uint) -> c_int {
    call("cuStreamCreate", |state| {
        let id = state.new_stream();
        // SAFETY: the caller's contract.
        unsafe { put(stream, id) }
    })
}

/// `cuStreamDestroy_v2`
#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: u64) -> c_int {
    call("cuStreamDestroy", |state| state.drop_stream(stream))
}

/// `cuStreamSynchronize`
#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: u64) -> c_int {
    call("cuStreamSynchronize", |state| state.wait_for_stream(stream))
}

/// `cuStreamBeginCapture_v2`, for one stream at a time.
#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: u64, _mode: c_int) -> c_int {
    call("cuStreamBeginCapture", |state| state.begin_capture(stream))
}

/// `cuStreamEndCapture`, which returns a null graph.
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: u64, graph: *mut *mut c_void) -> c_int {
    call("cuStreamEndCapture", |state| {
        state.end_capture(stream)?;
        // SAFETY: the caller's contract.
        unsafe { put(graph, std::ptr::null_mut()) }
    })
}

/// `cuStreamIsCapturing`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: u64, status: *mut c_int) -> c_int {
    call("cuStreamIsCapturing", |state| {
        state.stream(stream)?;
        // SAFETY: the caller's contract.
        unsafe { put(status, state.capture_status(stream)) }
    })
}

/// `cuStreamGetCtx`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCtx(stream: u64, context: *mut *mut c_void) -> c_int {
    call("cuStreamGetCtx", |state| {
        let device = state.device_of(stream)?;
        // SAFETY: the caller's contract.
        unsafe { put(context, std::ptr::without_provenance_mut(device as usize + 1)) }
    })
}

/// `cuStreamGetId`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetId(stream: u64, id: *mut u64) -> c_int {
    call("cuStreamGetId", |state| {
        state.name_stream(stream)?;
        // SAFETY: the caller's contract.
        unsafe { put(id, stream) }
    })
}

/// `cuStreamQuery`
#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: u64) -> c_int {
    call("cuStreamQuery", |state| state.query_stream(stream))
}

/// `cuThreadExchangeStreamCaptureMode`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    call("cuThreadExchangeStreamCaptureMode", |_| {
        // SAFETY: the caller's contract.
        let new = unsafe { mode.read() };
        // SAFETY: as above.
        unsafe { put(mode, MODE.with(|mode| mode.replace(new))) }
    })
}

/// `cuStreamWaitEvent`
#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: u64, event: u64, _flags: c_uint) -> c_int {
    call("cuStreamWaitEvent", |state| {
        state.stream(stream)?;
        state.wait(event)
    })
}

/// `cuEventCreate`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut u64, _flags: c_uint) -> c_int {
    call("cuEventCreate", |state| {
        let id = state.new_event();
        // SAFETY: the caller's contract.
        unsafe { put(event, id) }
    })
}

/// `cuEventRecord`
#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: u64, stream: u64) -> c_int {
    call("cuEventRecord", |state| state.record(event, stream))
}

/// `cuCtxRecordEvent`
#[unsafe(no_mangle)]
extern "C" fn cuCtxRecordEvent(context: *mut c_void, event: u64) -> c_int {
    call("cuCtxRecordEvent", |state| {
        state.record_all(context.addr() as i32 - 1, event)
    })
}

/// `cuEventQuery`
#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: u64) -> c_int {
    call("cuEventQuery", |state| state.query(event))
}

/// `cuEventSynchronize`
#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: u64) -> c_int {
    call("cuEventSynchronize", |state| state.wait(event))
}

/// `cuEventDestroy_v2`
#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: u64) -> c_int {
    call("cuEventDestroy", |state| state.drop_event(event))
}

/// `cuModuleLoadData`
#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(_module: *mut *mut c_void, _image: *const c_void) -> c_int {
    result::NOT_SUPPORTED
}

/// `cuModuleGetFunction`
#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(_function: *mut *mut c_void, _module: *mut c_void, _name: *const c_char) -> c_int {
    result::NOT_SUPPORTED
}

/// `cuModuleUnload`
#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(_module: *mut c_void) -> c_int {
    result::NOT_SUPPORTED
}

/// `cuLaunchKernel`
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
extern "C" fn cuLaunchKernel(
    _function: *mut c_void,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    _stream: u64,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    result::NOT_SUPPORTED
}
