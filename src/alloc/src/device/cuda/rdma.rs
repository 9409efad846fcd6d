//! Whether memory can be mapped that network cards and storage reach (GPUDirect RDMA).
//!
//! The device attribute is not enough. WSL2's driver before R615 reports support, creates and maps a chunk, and then refuses access to it with
//! `CUDA_ERROR_UNKNOWN` (pytorch/pytorch#192330). PyTorch's expandable segments fail there. So one chunk is mapped on trial when the device
//! is opened. That takes 0.3 ms; creating the context takes 128 ms (H200, driver 580).

use std::ffi::c_int;

use super::api::{AccessDesc, AllocationProp, Api};

const OUT_OF_MEMORY: c_int = 2;

/// Whether a chunk of this many bytes can be created with the flag and mapped. Running out of memory does not count as a refusal.
/// The device's context must be current.
pub(super) fn is_mapped(api: &Api, prop: &AllocationProp, access: &AccessDesc, bytes: usize) -> bool {
    let prop = AllocationProp {
        gpu_direct_rdma: 1,
        ..*prop
    };
    let (mut handle, mut addr) = (0, 0);
    // SAFETY: reads one AllocationProp, writes one handle.
    let mut code = unsafe { (api.create)(&mut handle, bytes, &prop, 0) };
    if code == 0 {
        // SAFETY: writes one address; reserves address space only.
        code = unsafe { (api.address_reserve)(&mut addr, bytes, bytes, 0, 0) };
        if code == 0 {
            code = map(api, addr, bytes, handle, access);
            // SAFETY: the range from above, in which nothing is mapped now.
            unsafe { (api.address_free)(addr, bytes) };
        }
        // SAFETY: the handle from above, once.
        unsafe { (api.release)(handle) };
    }
    [0, OUT_OF_MEMORY].contains(&code)
}

/// Maps a chunk in a range of its own, lets the device reach it, and unmaps it.
fn map(api: &Api, addr: u64, bytes: usize, handle: u64, access: &AccessDesc) -> c_int {
    // SAFETY: a reserved range and a live handle.
    let mut code = unsafe { (api.map)(addr, bytes, 0, handle, 0) };
    if code == 0 {
        // SAFETY: reads one AccessDesc.
        code = unsafe { (api.set_access)(addr, bytes, access, 1) };
        // SAFETY: mapped above, and used by nobody.
        unsafe { (api.unmap)(addr, bytes) };
    }
    code
}
