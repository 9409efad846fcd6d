//! The driver's own allocators.

use std::sync::Arc;

use cudarc::driver::{CudaContext, result, sys};
use gpumem_alloc::Stream;

use super::{GpuError, arg, while_doing};

/// The driver's own allocators: `cuMemAlloc`, and the device's stream-ordered pool, set to keep its memory.
#[derive(Debug)]
pub(crate) struct DriverMemory {
    context: Arc<CudaContext>,
    /// Null if only `cuMemAlloc` is used.
    pool: sys::CUmemoryPool,
}

impl DriverMemory {
    /// Binds the context and, if the pool is used, resets the pool's peaks.
    pub(crate) fn new(context: &Arc<CudaContext>, pool: bool) -> Result<DriverMemory, GpuError> {
        use sys::CUmemPool_attribute::{
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        };
        let mut memory = DriverMemory {
            context: Arc::clone(context),
            pool: std::ptr::null_mut(),
        };
        let setting_up = "setting up the device's memory pool";
        context.bind_to_thread().map_err(while_doing(setting_up))?;
        if pool {
            // SAFETY: the device of a live context.
            let found = unsafe { result::device::get_default_mem_pool(context.cu_device()) };
            memory.pool = found.map_err(while_doing(setting_up))?;
            let settings = [
                (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX),
                (CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0),
                (CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0),
            ];
            for (attribute, mut value) in settings {
                // SAFETY: the device's pool; these attributes are 64 bits, which the driver reads before it returns.
                let set = unsafe { result::mem_pool::set_attribute(memory.pool, attribute, arg(&mut value)) };
                set.map_err(while_doing(setting_up))?;
            }
        }
        Ok(memory)
    }

    pub(crate) fn alloc(&self, bytes: u64) -> Result<u64, GpuError> {
        // SAFETY: the context is current on this thread: `new` bound it, and a replay stays on its thread.
        unsafe { result::malloc_sync(bytes as usize) }.map_err(while_doing("cuMemAlloc"))
    }

    pub(crate) fn free(&self, addr: u64) -> Result<(), GpuError> {
        // SAFETY: the driver rejects an address that is not its own; no work uses the block.
        unsafe { result::free_sync(addr) }.map_err(while_doing("cuMemFree"))
    }

    pub(crate) fn alloc_async(&self, bytes: u64, stream: Stream) -> Result<u64, GpuError> {
        // SAFETY: as for `alloc`; the stream is one of this context and outlives the replay.
        unsafe { result::malloc_async(stream.0 as sys::CUstream, bytes as usize) }
            .map_err(while_doing("cuMemAllocAsync"))
    }

    pub(crate) fn free_async(&self, addr: u64, stream: Stream) -> Result<(), GpuError> {
        // SAFETY: as for `free` and `alloc_async`.
        unsafe { result::free_async(addr, stream.0 as sys::CUstream) }.map_err(while_doing("cuMemFreeAsync"))
    }

    /// Returns the peak bytes of the pool in use, and the peak bytes it took from the device, since `new`.
    pub(crate) fn pool_peaks(&self) -> Result<(u64, u64), GpuError> {
        use sys::CUmemPool_attribute::{CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_USED_MEM_HIGH};
        let ask = |attribute| {
            let mut value = 0u64;
            // SAFETY: the device's pool; these attributes are 64 bits, which the driver writes.
            unsafe { result::mem_pool::get_attribute(self.pool, attribute, arg(&mut value)) }
                .map_err(while_doing("asking the device's memory pool"))?;
            Ok(value)
        };
        Ok((
            ask(CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
            ask(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
        ))
    }

    pub(crate) fn synchronize(&self) -> Result<(), GpuError> {
        self.context
            .synchronize()
            .map_err(while_doing("waiting for the device"))
    }
}

impl Drop for DriverMemory {
    fn drop(&mut self) {
        if !self.pool.is_null() && self.synchronize().is_ok() {
            // SAFETY: the device's pool. A failure here is reported by the next use of the device.
            let _ = unsafe { result::mem_pool::trim_to(self.pool, 0) };
        }
    }
}
