//! Memory of a peer GPU.

use std::ffi::c_int;
use std::sync::Arc;

use cudarc::driver::sys::CUdevice_P2PAttribute as Attribute;
use cudarc::driver::{CudaContext, DriverError, result, sys};
use gpumem_alloc::device::{Device, cuda};

use super::CudaRig;
use super::attributes::uuid_text;
use super::memory::Arena;
use crate::gpu::{GpuError, while_doing};
use crate::rig::{Peer, RigError};

/// Most peers that are listed. No machine has more GPUs that reach each other's memory.
const MOST: c_int = 64;

/// Memory of a peer, within reach of kernels on the rig's device.
#[derive(Debug)]
pub(super) struct PeerMemory {
    number: u32,
    pub(super) context: Arc<CudaContext>,
    pub(super) arena: Arena,
    // Last, because its context has to outlive the memory.
    _device: Device,
}

/// Returns the GPUs whose memory kernels in this context can reach.
pub(super) fn peers(context: &CudaContext) -> Result<Vec<Peer>, GpuError> {
    let own = context.cu_device();
    let mut found = Vec::new();
    let mut list = || -> Result<(), DriverError> {
        for number in 0..result::device::get_count()?.min(MOST) {
            let device = result::device::get(number)?;
            if device == own {
                continue;
            }
            let mut can: c_int = 0;
            // SAFETY: writes one number.
            unsafe { sys::cuDeviceCanAccessPeer(&mut can, own, device) }.result()?;
            if can == 0 {
                continue;
            }
            let uuid = result::device::get_uuid(device)?.bytes.map(|byte| byte as u8);
            found.push(Peer {
                device: u32::try_from(number).unwrap_or(0),
                name: gpumem_text::clean_line(result::device::get_name(device)?.as_bytes(), 80),
                uuid: uuid_text(&uuid),
                performance_rank: link(Attribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, own, device),
                native_atomics: link(Attribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, own, device)
                    .map(|supported| supported != 0),
            });
        }
        Ok(())
    };
    list().map_err(while_doing("asking for peer GPUs"))?;
    Ok(found)
}

/// Returns an attribute of the link between two devices. `None` if the driver does not know it.
fn link(attribute: Attribute, from: sys::CUdevice, to: sys::CUdevice) -> Option<u32> {
    let mut value: c_int = 0;
    // SAFETY: writes one number.
    let asked = unsafe { sys::cuDeviceGetP2PAttribute(&mut value, attribute, from, to) };
    asked.result().ok().and_then(|()| u32::try_from(value).ok())
}

impl CudaRig {
    /// Takes memory of a peer out, of at least so many bytes. Memory of another peer is freed first.
    pub(super) fn take_peer(&mut self, number: u32, bytes: u64) -> Result<PeerMemory, RigError> {
        let fits = |peer: &PeerMemory| peer.number == number && peer.arena.bytes >= bytes;
        match self.peer.take().filter(fits) {
            Some(peer) => Ok(peer),
            None => {
                let peer = PeerMemory::new(&self.context, number, bytes);
                // Freeing memory of a peer leaves the peer's context current, and so does a failure.
                self.context
                    .bind_to_thread()
                    .map_err(while_doing("returning to the device's context"))?;
                peer
            }
        }
    }
}

impl PeerMemory {
    fn new(own: &CudaContext, number: u32, bytes: u64) -> Result<PeerMemory, RigError> {
        let device = cuda(number).map_err(|error| RigError(format!("GPU {number}: {error}")))?;
        let context = device.cuda_context().map(Arc::clone);
        let context = context.ok_or_else(|| RigError(format!("GPU {number} has no context")))?;
        context
            .bind_to_thread()
            .map_err(while_doing("making a context on a peer GPU"))?;
        let (free, _) = result::mem_get_info().map_err(while_doing("asking for a peer's free memory"))?;
        if bytes > free as u64 / 4 {
            return Err(RigError(format!(
                "GPU {number} has other users: {bytes} bytes are more than a quarter of its {free} free ones"
            )));
        }
        let arena = Arena::new(&context, bytes)?;
        let peer = PeerMemory {
            number,
            context,
            arena,
            _device: device,
        };
        own.bind_to_thread()
            .map_err(while_doing("returning to the device's context"))?;
        // SAFETY: the peer's context lives as long as this object.
        let enabled = unsafe { sys::cuCtxEnablePeerAccess(peer.context.cu_ctx(), 0) }.result();
        match enabled {
            Err(DriverError(sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)) => {}
            enabled => enabled.map_err(while_doing("reaching a peer GPU's memory"))?,
        }
        Ok(peer)
    }
}
