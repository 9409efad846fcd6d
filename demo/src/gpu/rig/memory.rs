//! Memory of the device and pinned memory of the host.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError, result, sys};

use crate::gpu::{GpuError, while_doing};

/// The device's memory.
#[derive(Debug)]
pub(super) struct Arena {
    context: Arc<CudaContext>,
    pub(super) address: sys::CUdeviceptr,
    pub(super) bytes: u64,
}

impl Arena {
    pub(super) fn new(context: &Arc<CudaContext>, bytes: u64) -> Result<Arena, GpuError> {
        // SAFETY: the context is current on this thread; nothing reads the memory before a kernel has written it.
        let address = unsafe { result::malloc_sync(bytes as usize) }.map_err(while_doing("allocating the budget"))?;
        Ok(Arena {
            context: Arc::clone(context),
            address,
            bytes,
        })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // A context that is broken or gone has freed it already.
        if self.context.synchronize().is_ok() {
            // SAFETY: the address came from `malloc_sync` of this object, once, and no work uses it any more.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}

/// Pinned memory of the host, mapped for the device at the same address.
#[derive(Debug)]
pub(super) struct Pinned {
    context: Arc<CudaContext>,
    pub(super) address: NonNull<c_void>,
    pub(super) bytes: usize,
}

impl Pinned {
    pub(super) fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Pinned, GpuError> {
        let doing = "allocating pinned memory of the host";
        // SAFETY: the context is current on this thread; the memory is zeroed below.
        let address = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_DEVICEMAP) };
        let address = NonNull::new(address.map_err(while_doing(doing))?)
            .ok_or_else(|| while_doing(doing)(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)))?;
        // SAFETY: the allocation is this long.
        unsafe { address.as_ptr().cast::<u8>().write_bytes(0, bytes) };
        Ok(Pinned {
            context: Arc::clone(context),
            address,
            bytes,
        })
    }

    /// Returns its first `length` bytes, or all of it if that is less.
    pub(super) fn part(&mut self, length: usize) -> &mut [u8] {
        let length = length.min(self.bytes);
        // SAFETY: the memory is this long and was zeroed. The rig waits for kernels and copies before it is used again.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr().cast(), length) }
    }

    /// Returns the address for the device: the same one, as the unified address space has it.
    pub(super) fn on_device(&self) -> u64 {
        self.address.as_ptr() as u64
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A context that is broken or gone has freed it already.
        if self.context.synchronize().is_ok() {
            // SAFETY: the pointer came from `malloc_host` of this object, once, and no work uses it any more.
            let _ = unsafe { result::free_host(self.address.as_ptr()) };
        }
    }
}
