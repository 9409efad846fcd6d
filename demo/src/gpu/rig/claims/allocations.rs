//! Allocations by the driver, timed by the host's clock.

use std::time::Instant;

use cudarc::driver::result;

use super::{CudaClaims, ns_since};
use crate::gpu::while_doing;
use crate::rig::RigError;
use crate::rig::claims::{Allocations, Malloc};

impl Allocations for CudaClaims {
    fn malloc(&mut self, bytes: u64) -> Result<Malloc, RigError> {
        self.within_budget(bytes)?;
        self.context
            .synchronize()
            .map_err(while_doing("waiting for the device"))?;
        let began = Instant::now();
        // SAFETY: the context is current on this thread; nothing reads the memory.
        let address = unsafe { result::malloc_sync(bytes as usize) }.map_err(while_doing("cuMemAlloc"))?;
        let alloc_ns = ns_since(began);
        let began = Instant::now();
        // SAFETY: the address came from `malloc_sync` just now.
        unsafe { result::free_sync(address) }.map_err(while_doing("cuMemFree"))?;
        Ok(Malloc {
            alloc_ns,
            free_ns: ns_since(began),
        })
    }
}
