//! Copies between host and device, timed by the host's clock.

use std::time::Instant;

use cudarc::driver::{DriverError, result};

use super::{Contents, CudaClaims, ns_since};
use crate::gpu::rig::copy::HostMemory;
use crate::gpu::while_doing;
use crate::rig::claims::{Copied, Copies, Pipeline};
use crate::rig::{RigError, Route};

/// What is copied back and forth.
const CONTENTS: u8 = 0x5a;

impl Copies for CudaClaims {
    fn copy_async(&mut self, route: Route, bytes: u64) -> Result<Copied, RigError> {
        let refused = || RigError(format!("a copy of {bytes} bytes does not fit into what there is"));
        let device = self.memory(bytes)?;
        self.contents = Contents::Unknown;
        let (pinned, to_host) = match route {
            Route::PinnedToDevice => (true, false),
            Route::DeviceToPinned => (true, true),
            Route::PageableToDevice => (false, false),
            Route::DeviceToPageable => (false, true),
            Route::DeviceToDevice | Route::PeerToDevice(_) | Route::DeviceToPeer(_) => return Err(refused()),
        };
        let mut host = self.host_memory()?;
        let part = host.part(pinned, bytes).ok_or_else(refused)?;
        // Both ends are set before: what arrives is what was sent, and not what was there.
        part.fill(if to_host { !CONTENTS } else { CONTENTS });
        let copied = self.copy_timed(device, part, to_host, bytes);
        let copied = copied.map_err(while_doing("copying between host and device"))?;
        let arrived = match to_host {
            true => part.iter().all(|byte| *byte == CONTENTS),
            false => self.device_holds(device, part)?,
        };
        self.host = Some(host);
        match arrived {
            true => Ok(copied),
            false => Err(RigError("a copy brought other data than was sent".to_owned())),
        }
    }

    fn compute(&mut self, bytes: u64, rounds: u32) -> Result<u64, RigError> {
        self.compute_timed(bytes, rounds)
    }

    fn pipeline(&mut self, pipeline: Pipeline) -> Result<u64, RigError> {
        self.run_pipeline(pipeline)
    }
}

impl CudaClaims {
    /// Takes the host's memory, which is allocated when it is first needed.
    pub(super) fn host_memory(&mut self) -> Result<HostMemory, RigError> {
        Ok(match self.host.take() {
            Some(host) => host,
            None => HostMemory::new(&self.context)?,
        })
    }

    fn copy_timed(&self, device: u64, host: &mut [u8], to_host: bool, bytes: u64) -> Result<Copied, DriverError> {
        let before = if to_host { CONTENTS } else { !CONTENTS };
        // SAFETY: the device's memory has this many bytes, and lives until the synchronisation.
        unsafe { result::memset_d8_async(device, before, bytes as usize, self.stream.handle()) }?;
        self.stream.synchronize()?;
        let began = Instant::now();
        match to_host {
            // SAFETY: both ends have this many bytes and are left alone until the synchronisation. An error of the call says that
            // nothing was queued.
            true => unsafe { result::memcpy_dtoh_async(host, device, self.stream.handle()) },
            // SAFETY: as above.
            false => unsafe { result::memcpy_htod_async(device, host, self.stream.handle()) },
        }?;
        let returned_ns = ns_since(began);
        self.stream.synchronize()?;
        Ok(Copied {
            returned_ns,
            done_ns: ns_since(began),
        })
    }

    /// Checks whether the device's memory holds what was sent, by copying it back to the same place.
    fn device_holds(&self, device: u64, host: &mut [u8]) -> Result<bool, RigError> {
        host.fill(!CONTENTS);
        // SAFETY: the device's memory has this many bytes; the call returns when the copy is done.
        unsafe { result::memcpy_dtoh_sync(host, device) }.map_err(while_doing("copying back"))?;
        Ok(host.iter().all(|byte| *byte == CONTENTS))
    }
}
