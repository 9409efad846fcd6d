//! Captures of CUDA graphs by PyTorch.
//!
//! `CUDAGraph::capture_begin` has its requests sent to a pool and then begins the capture, from the thread's current stream.
//! `CUDAGraph::capture_end` ends the capture and, if that succeeds, what is sent to the pool; a failed capture's graph releases no pool,
//! either (2.11). So where a capture is going to begin is found out here, and the routing ends with it.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use gpumem::Stream;

use crate::adopt::streams::current_lasts;
use crate::library::{Library, are_of_one_library};

/// What captures graphs.
const LIBRARY: &CStr = c"libtorch_cuda.so";

/// `AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream)`, of PyTorch's stable C ABI
/// (`torch/csrc/inductor/aoti_torch/c/shim.h`). 0 is success.
type CurrentStream = unsafe extern "C-unwind" fn(c_int, *mut *mut c_void) -> c_int;
const CURRENT_STREAM: &CStr = c"aoti_torch_get_current_cuda_stream";

/// A stream that a capture may begin from.
pub(crate) struct Capturing {
    pub(crate) stream: Stream,
    /// Whether it lasts as long as the process.
    pub(crate) lasts: bool,
}

/// The stream that the calling thread may begin to capture from, if a filter whose code is at this address is PyTorch's own. Other filters
/// are of captures that nobody knows, or of none.
pub(crate) fn stream(device: c_int, code: *const c_void) -> Option<Capturing> {
    let pytorch = Library::loaded(LIBRARY)?;
    // SAFETY: the function of that name, which is C's.
    let current_stream = unsafe { pytorch.function::<CurrentStream>(CURRENT_STREAM) }?;
    if !are_of_one_library(code, current_stream as *const c_void) {
        return None;
    }
    let mut stream = null_mut();
    // SAFETY: writes one pointer.
    let code = unsafe { current_stream(device, &raw mut stream) };
    // Nothing is captured from the legacy default stream, and the per-thread one is another one in each thread.
    const PER_THREAD: usize = 2;
    (code == 0 && stream.addr() > PER_THREAD).then(|| Capturing {
        stream: Stream(stream.addr() as u64),
        lasts: current_lasts(&pytorch, device),
    })
}
