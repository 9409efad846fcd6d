//! Copies by the driver, and the host's memory that they use.

use std::time::Instant;

use cudarc::driver::{DriverError, result};

use super::CudaRig;
use super::memory::Pinned;
use crate::gpu::while_doing;
use crate::rig::{Moved, RigError, Route};

/// Bytes of each kind of host memory.
const HOST_BYTES: usize = 64 << 20;

/// Memory of the host, as much pinned as pageable.
#[derive(Debug)]
pub(super) struct HostMemory {
    pub(super) pinned: Pinned,
    pageable: Vec<u8>,
}

impl CudaRig {
    /// Returns the host's memory, which is allocated when it is first needed.
    pub(super) fn host_memory(&mut self) -> Result<&mut HostMemory, RigError> {
        let host = match self.host.take() {
            Some(host) => host,
            None => HostMemory {
                pinned: Pinned::new(&self.context, HOST_BYTES)?,
                // Other than 0, so that every page is there before it is measured.
                pageable: vec![1; HOST_BYTES],
            },
        };
        Ok(self.host.insert(host))
    }

    pub(super) fn copy_by_driver(&mut self, route: Route, bytes: u64) -> Result<Moved, RigError> {
        let within_host = usize::try_from(bytes).is_ok_and(|bytes| bytes <= HOST_BYTES);
        let fits = match route {
            Route::DeviceToDevice => bytes <= self.arena.bytes / 2,
            _ => bytes <= self.arena.bytes && within_host,
        };
        if !fits {
            return Err(RigError(format!(
                "a copy of {bytes} bytes does not fit into what there is"
            )));
        }
        self.ring = None;
        self.filled = 0;
        self.host_memory()?;
        let ns = self
            .copy_timed(route, bytes as usize)
            .map_err(while_doing("copying by the driver"))?;
        let passes = if route == Route::DeviceToDevice { 2 } else { 1 };
        Ok(Moved {
            bytes: bytes * passes,
            ns,
            clocks: None,
        })
    }

    fn copy_timed(&mut self, route: Route, bytes: usize) -> Result<u64, DriverError> {
        let Some(host) = &mut self.host else { return Ok(0) };
        let device = self.arena.address;
        // SAFETY: pinned memory of this object; the driver alone accesses it until the synchronisation below.
        let pinned = unsafe { std::slice::from_raw_parts_mut(host.pinned.address.as_ptr().cast::<u8>(), bytes) };
        let null = result::stream::null();
        let [before, after] = &self.events;
        self.context.synchronize()?;
        let began = Instant::now();
        before.record()?;
        match route {
            // SAFETY: both halves are memory of this object, of at least `bytes` bytes each.
            Route::DeviceToDevice => unsafe {
                result::memcpy_dtod_async(device + self.arena.bytes / 2, device, bytes, null)
            },
            // SAFETY: the device's memory has `bytes` bytes, and both live until the synchronisation below.
            Route::PinnedToDevice => unsafe { result::memcpy_htod_async(device, pinned, null) },
            // SAFETY: as above.
            Route::DeviceToPinned => unsafe { result::memcpy_dtoh_async(pinned, device, null) },
            // SAFETY: the device's memory has `bytes` bytes; the call returns when the host's memory is no longer used.
            Route::PageableToDevice => unsafe { result::memcpy_htod_sync(device, &host.pageable[..bytes]) },
            // SAFETY: as above.
            Route::DeviceToPageable => unsafe { result::memcpy_dtoh_sync(&mut host.pageable[..bytes], device) },
        }?;
        after.record()?;
        let by_events = after.ns_since(before)?;
        let by_host = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // A pageable copy is work of the host, which the device's events see in parts only.
        Ok(match route {
            Route::PageableToDevice | Route::DeviceToPageable => by_host,
            Route::DeviceToDevice | Route::PinnedToDevice | Route::DeviceToPinned => by_events,
        })
    }
}
