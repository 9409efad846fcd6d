//! Copies by the driver, and the host's memory that they use.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaContext, DriverError, result};

use super::CudaRig;
use super::event::Event;
use super::memory::Pinned;
use crate::gpu::{GpuError, while_doing};
use crate::rig::{Moved, RigError, Route};

/// Bytes of each kind of host memory.
const HOST_BYTES: usize = 64 << 20;

/// Memory of the host, as much pinned as pageable.
#[derive(Debug)]
pub(super) struct HostMemory {
    pub(super) pinned: Pinned,
    pageable: Vec<u8>,
}

impl HostMemory {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<HostMemory, GpuError> {
        Ok(HostMemory {
            pinned: Pinned::new(context, HOST_BYTES)?,
            // Other than 0, so that every page is there before it is measured.
            pageable: vec![1; HOST_BYTES],
        })
    }

    /// Returns the first bytes of one of them, if it has so many.
    pub(super) fn part(&mut self, pinned: bool, bytes: u64) -> Option<&mut [u8]> {
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= HOST_BYTES)?;
        Some(match pinned {
            true => self.pinned.part(bytes),
            false => self.pageable.get_mut(..bytes)?,
        })
    }
}

/// How long a copy took, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Took {
    /// From an event before it to an event behind it.
    by_events: u64,
    /// By the host's clock. A copy of pageable memory is work of the host, which the events see in parts only.
    by_host: u64,
}

impl CudaRig {
    /// Takes the host's memory out, which is allocated when it is first needed.
    pub(super) fn take_host(&mut self) -> Result<HostMemory, RigError> {
        match self.host.take() {
            Some(host) => Ok(host),
            None => Ok(HostMemory::new(&self.context)?),
        }
    }

    pub(super) fn copy_by_driver(&mut self, route: Route, bytes: u64) -> Result<Moved, RigError> {
        let (room, passes) = match route {
            Route::DeviceToDevice => (self.arena.bytes / 2, 2),
            Route::PeerToDevice(_) | Route::DeviceToPeer(_) => (self.arena.bytes, 1),
            _ => (self.arena.bytes.min(HOST_BYTES as u64), 1),
        };
        if bytes > room {
            return Err(RigError(format!(
                "a copy of {bytes} bytes does not fit into the {room} that there are"
            )));
        }
        self.ring = None;
        self.filled = 0;
        let ns = match route {
            Route::DeviceToDevice => self.copy_within(bytes as usize)?,
            Route::PeerToDevice(peer) | Route::DeviceToPeer(peer) => self.copy_peer(peer, route, bytes)?,
            _ => self.copy_host(route, bytes as usize)?,
        };
        Ok(Moved {
            bytes: bytes * passes,
            ns,
            clocks: None,
        })
    }

    fn copy_within(&self, bytes: usize) -> Result<u64, RigError> {
        let (from, to) = (self.arena.address, self.arena.address + self.arena.bytes / 2);
        // SAFETY: both halves are memory of this object, of at least `bytes` bytes each.
        let copy = || unsafe { result::memcpy_dtod_async(to, from, bytes, result::stream::null()) };
        Ok(timed(&self.context, &self.events, copy)
            .map_err(while_doing("copying device memory by the driver"))?
            .by_events)
    }

    fn copy_peer(&mut self, number: u32, route: Route, bytes: u64) -> Result<u64, RigError> {
        let peer = self.take_peer(number, bytes)?;
        let own = (self.context.cu_ctx(), self.arena.address);
        let theirs = (peer.context.cu_ctx(), peer.arena.address);
        let (to, from) = match route {
            Route::DeviceToPeer(_) => (theirs, own),
            _ => (own, theirs),
        };
        let (length, null) = (bytes as usize, result::stream::null());
        // SAFETY: both are memory of this object in these contexts, of at least `bytes` bytes each.
        let copy = || unsafe { result::memcpy_peer_async(to.0, to.1, from.0, from.1, length, null) };
        let took = timed(&self.context, &self.events, copy);
        self.peer = Some(peer);
        Ok(took
            .map_err(while_doing("copying between GPUs by the driver"))?
            .by_events)
    }

    fn copy_host(&mut self, route: Route, bytes: usize) -> Result<u64, RigError> {
        let mut host = self.take_host()?;
        let (device, null) = (self.arena.address, result::stream::null());
        let copy = || match route {
            // SAFETY: the device's memory has `bytes` bytes, and both live until `timed` has waited for the copy.
            Route::PinnedToDevice => unsafe { result::memcpy_htod_async(device, host.pinned.part(bytes), null) },
            // SAFETY: as above.
            Route::DeviceToPinned => unsafe { result::memcpy_dtoh_async(host.pinned.part(bytes), device, null) },
            // SAFETY: the device's memory has `bytes` bytes; the call returns when the host's memory is no longer used.
            Route::PageableToDevice => unsafe { result::memcpy_htod_sync(device, &host.pageable[..bytes]) },
            // SAFETY: as above.
            _ => unsafe { result::memcpy_dtoh_sync(&mut host.pageable[..bytes], device) },
        };
        let took = timed(&self.context, &self.events, copy);
        self.host = Some(host);
        let took = took.map_err(while_doing("copying host memory by the driver"))?;
        Ok(match route {
            Route::PinnedToDevice | Route::DeviceToPinned => took.by_events,
            _ => took.by_host,
        })
    }
}

/// Waits for earlier work, copies, and waits for the copy.
fn timed(
    context: &CudaContext,
    [before, after]: &[Event; 2],
    copy: impl FnOnce() -> Result<(), DriverError>,
) -> Result<Took, DriverError> {
    context.synchronize()?;
    let began = Instant::now();
    before.record()?;
    copy()?;
    after.record()?;
    let by_events = after.ns_since(before)?;
    let by_host = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Ok(Took { by_events, by_host })
}
