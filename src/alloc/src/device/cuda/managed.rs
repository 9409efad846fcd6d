//! Managed memory on a CUDA device (`cuda.h`, "Memory Management" and "Unified Addressing").

use std::ffi::{c_int, c_uint};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS as ON_DEMAND;
use cudarc::driver::sys::CUmem_advise_enum as Number;

use super::{Cuda, handle_of};
use crate::device::managed::{Advice, Location, ManagedMemory};
use crate::device::{Driver, Result};
use crate::error::DeviceError;
use crate::stream::Stream;

/// `CU_MEM_ATTACH_GLOBAL`: any stream may use it.
const ATTACH_GLOBAL: c_uint = 1;
/// `CU_DEVICE_CPU`.
const CPU: c_int = -1;

/// An allocation, which only this object knows until it hands the address to kernels.
#[derive(Debug)]
struct Allocation {
    driver: Arc<Cuda>,
    addr: u64,
    bytes: usize,
}

impl Cuda {
    /// Allocates managed memory.
    pub(super) fn allocate_managed(self: Arc<Self>, bytes: u64) -> Result<Box<dyn ManagedMemory>> {
        let alloc = self
            .api
            .mem_alloc_managed
            .ok_or_else(|| DeviceError::not_here("cuMemAllocManaged"))?;
        if self.api.attribute(self.primary.device(), ON_DEMAND)? == 0 {
            return Err(DeviceError::not_here(
                "access to managed memory by CPU and GPU at the same time",
            ));
        }
        let bytes = usize::try_from(bytes).map_err(|_| DeviceError::not_here("cuMemAllocManaged of so much"))?;
        let mut addr = 0;
        {
            let _bound = self.bind()?;
            // SAFETY: writes one address.
            let code = unsafe { alloc(&mut addr, bytes, ATTACH_GLOBAL) };
            self.api.check("cuMemAllocManaged", code)?;
        }
        Ok(Box::new(Allocation {
            driver: self,
            addr,
            bytes,
        }))
    }

    /// The driver's number of a place, as the first versions of the calls take it. Newer drivers have these, too.
    fn number(&self, place: Location) -> c_int {
        match place {
            Location::Cpu => CPU,
            Location::Device => self.primary.device(),
        }
    }
}

impl ManagedMemory for Allocation {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn prefetch(&self, offset: u64, bytes: u64, to: Location, stream: Stream) -> Result<()> {
        let Cuda { api, .. } = &*self.driver;
        let prefetch = api
            .mem_prefetch
            .ok_or_else(|| DeviceError::not_here("cuMemPrefetchAsync"))?;
        let _bound = self.driver.bind()?;
        let to = self.driver.number(to);
        // SAFETY: the driver checks the range; the stream lives (see the module above).
        let code = unsafe { prefetch(self.addr + offset, bytes as usize, to, handle_of(stream)) };
        api.check("cuMemPrefetchAsync", code)
    }

    fn advise(&self, advice: Advice) -> Result<()> {
        let Cuda { api, .. } = &*self.driver;
        let advise = api.mem_advise.ok_or_else(|| DeviceError::not_here("cuMemAdvise"))?;
        let (what, place) = match advice {
            Advice::ReadMostly(true) => (Number::CU_MEM_ADVISE_SET_READ_MOSTLY, Location::Cpu),
            Advice::ReadMostly(false) => (Number::CU_MEM_ADVISE_UNSET_READ_MOSTLY, Location::Cpu),
            Advice::Prefer(Some(place)) => (Number::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place),
            Advice::Prefer(None) => (Number::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, Location::Cpu),
            Advice::AccessedBy(place, true) => (Number::CU_MEM_ADVISE_SET_ACCESSED_BY, place),
            Advice::AccessedBy(place, false) => (Number::CU_MEM_ADVISE_UNSET_ACCESSED_BY, place),
        };
        let _bound = self.driver.bind()?;
        // SAFETY: the driver checks the range.
        let code = unsafe { advise(self.addr, self.bytes, what as c_int, self.driver.number(place)) };
        api.check("cuMemAdvise", code)
    }

    fn discard(&mut self, offset: u64, bytes: u64, stream: Stream) -> Result<()> {
        let Cuda { api, .. } = &*self.driver;
        let discard = api
            .mem_discard_batch
            .ok_or_else(|| DeviceError::not_here("cuMemDiscardBatchAsync, which drivers have from CUDA 13.0 on"))?;
        let _bound = self.driver.bind()?;
        let (mut addr, mut bytes) = (self.addr + offset, bytes as usize);
        // Calls for batches refuse the legacy default stream (seen on an H200 with driver 580). The thread's own one waits for it, and it for
        // that.
        let stream = match handle_of(stream) {
            legacy if legacy.is_null() => handle_of(Stream::PER_THREAD),
            stream => stream,
        };
        // SAFETY: arrays of one range, which the driver checks; the stream lives (see the module above).
        let code = unsafe { discard(&mut addr, &mut bytes, 1, 0, stream) };
        api.check("cuMemDiscardBatchAsync", code)
    }

    fn host(&mut self) -> Result<&mut [u8]> {
        self.driver.synchronize()?;
        let first = ptr::with_exposed_provenance_mut(self.addr as usize);
        // SAFETY: the allocation is this object's, which is borrowed as long as the slice is used. The CPU can reach it while the GPU is idle
        // or busy with something else: `managed` checked it. All of it is initialised, because untouched pages are zeroes, and the device was
        // waited for.
        Ok(unsafe { std::slice::from_raw_parts_mut(first, self.bytes) })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // The driver waits for its users. A context that is gone has freed it already.
        let _ = self.driver.free(self.addr);
    }
}
