//! Each device's stream-ordered memory pool. It only releases memory when it is trimmed, and then to the exact byte. The driver's pool does
//! the same with an unlimited release threshold.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use crate::device::current;
use crate::state::{GRANULARITY, call};
use crate::{put, result};

/// `CUmemPool_attribute` values.
const RELEASE_THRESHOLD: c_int = 4;
const RESERVED_MEM_HIGH: c_int = 6;
const USED_MEM_HIGH: c_int = 8;

/// The counters of one pool.
#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
}

/// The pools of all devices.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    /// By device.
    pools: HashMap<i32, Pool>,
    /// Device and size of each block in use, by address.
    blocks: HashMap<u64, (i32, u64)>,
}

/// Returns the device of a pool's handle, which is the same as that of the device's context.
fn pool_of(handle: *mut c_void) -> Result<i32, i32> {
    i32::try_from(handle.addr())
        .ok()
        .filter(|id| *id > 0)
        .map(|id| id - 1)
        .ok_or(result::INVALID_VALUE)
}

/// `cuDeviceGetDefaultMemPool`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut *mut c_void, device: c_int) -> c_int {
    call("cuDeviceGetDefaultMemPool", |state| {
        let device = state.device(device)?;
        // SAFETY: the caller's contract.
        unsafe { put(pool, std::ptr::without_provenance_mut(device as usize + 1)) }
    })
}

/// `cuMemPoolSetAttribute`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for reads of the attribute, which is 64 bits for those known here.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolSetAttribute(pool: *mut c_void, attribute: c_int, value: *mut c_void) -> c_int {
    call("cuMemPoolSetAttribute", |state| {
        let device = state.device(pool_of(pool)?)?;
        // SAFETY: the caller's contract.
        let value = unsafe { value.cast::<u64>().read() };
        let pool = state.pools.pools.entry(device).or_default();
        match (attribute, value) {
            (RELEASE_THRESHOLD, u64::MAX) => {}
            (RESERVED_MEM_HIGH, 0) => pool.reserved_high = pool.reserved,
            (USED_MEM_HIGH, 0) => pool.used_high = pool.used,
            _ => return Err(result::INVALID_VALUE),
        }
        Ok(())
    })
}

/// `cuMemPoolGetAttribute`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes of the attribute, which is 64 bits for those known here.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolGetAttribute(pool: *mut c_void, attribute: c_int, value: *mut c_void) -> c_int {
    call("cuMemPoolGetAttribute", |state| {
        let device = state.device(pool_of(pool)?)?;
        let pool = state.pools.pools.entry(device).or_default();
        let found = match attribute {
            RESERVED_MEM_HIGH => pool.reserved_high,
            USED_MEM_HIGH => pool.used_high,
            _ => return Err(result::INVALID_VALUE),
        };
        // SAFETY: the caller's contract.
        unsafe { put(value.cast(), found) }
    })
}

/// `cuMemPoolTrimTo`
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolTrimTo(pool: *mut c_void, keep: usize) -> c_int {
    call("cuMemPoolTrimTo", |state| {
        let device = state.device(pool_of(pool)?)?;
        let pool = state.pools.pools.entry(device).or_default();
        pool.reserved = pool.reserved.min(pool.used.max(keep as u64));
        Ok(())
    })
}

/// `cuMemAllocAsync`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(addr: *mut u64, bytes: usize, stream: u64) -> c_int {
    call("cuMemAllocAsync", |state| {
        state.stream(stream)?;
        let device = current()?;
        let found = state.alloc(device, bytes as u64)?;
        let rounded = (bytes as u64).next_multiple_of(GRANULARITY);
        state.pools.blocks.insert(found, (device, rounded));
        let pool = state.pools.pools.entry(device).or_default();
        pool.used += rounded;
        pool.used_high = pool.used_high.max(pool.used);
        pool.reserved = pool.reserved.max(pool.used);
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        // SAFETY: the caller's contract.
        unsafe { put(addr, found) }
    })
}

/// `cuMemFreeAsync`
#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(addr: u64, stream: u64) -> c_int {
    call("cuMemFreeAsync", |state| {
        state.stream(stream)?;
        let (device, bytes) = state.pools.blocks.remove(&addr).ok_or(result::INVALID_VALUE)?;
        state.pools.pools.entry(device).or_default().used -= bytes;
        state.free(addr)
    })
}
