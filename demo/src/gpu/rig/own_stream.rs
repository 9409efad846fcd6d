//! Streams that do not wait for the legacy default stream.

use cudarc::driver::result::stream::StreamKind;
use cudarc::driver::{DriverError, result, sys};
use gpumem_alloc::Stream;

use crate::gpu::{GpuError, while_doing};

/// A stream, which ends with this.
#[derive(Debug)]
pub(super) struct OwnStream(sys::CUstream);

impl OwnStream {
    pub(super) fn new() -> Result<OwnStream, GpuError> {
        let stream = result::stream::create(StreamKind::NonBlocking);
        stream.map(OwnStream).map_err(while_doing("making a stream"))
    }

    pub(super) fn handle(&self) -> sys::CUstream {
        self.0
    }

    /// Returns it as the allocator names it.
    pub(super) fn named(&self) -> Stream {
        Stream(self.0 as u64)
    }

    pub(super) fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives as long as this object.
        unsafe { result::stream::synchronize(self.0) }
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        // SAFETY: the stream is this object's. Destroying one whose context is gone fails, which changes nothing.
        let _ = unsafe { result::stream::destroy(self.0) };
    }
}
