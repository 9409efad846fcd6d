//! Plain memory, memory that is mapped into address ranges, and copies.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use crate::device::current;
use crate::state::{GRANULARITY, State, call};
use crate::{put, result};

/// The part of `CUmemAllocationProp` and `CUmemAccessDesc` that is read.
#[repr(C)]
#[derive(Clone, Copy)]
struct Prop {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location_id: c_int,
    win32: *const c_void,
    compression: u8,
    gpu_direct_rdma: u8,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Access {
    location_kind: c_int,
    location_id: c_int,
    flags: c_int,
}

/// Returns the device on which pinned device memory is requested.
///
/// # Safety
///
/// `prop` is null or points to a `CUmemAllocationProp`.
unsafe fn device_of(state: &State, prop: *const Prop) -> Result<i32, i32> {
    if prop.is_null() || !state.settings.vmm {
        return Err(if prop.is_null() {
            result::INVALID_VALUE
        } else {
            result::NOT_SUPPORTED
        });
    }
    // SAFETY: not null, so it points to a property by this function's contract.
    let prop = unsafe { *prop };
    if (prop.kind, prop.location_kind) != (1, 1) {
        return Err(result::INVALID_VALUE);
    }
    state.device(prop.location_id)
}

/// `cuMemGetInfo_v2`
///
/// # Safety
///
/// As in the driver API: the pointers are valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    call("cuMemGetInfo", |state| {
        let device = current()?;
        // SAFETY: the caller's contract.
        unsafe { put(free, state.free_bytes(device) as usize)? };
        // SAFETY: the caller's contract.
        unsafe { put(total, state.settings.total as usize) }
    })
}

/// `cuMemAlloc_v2`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(addr: *mut u64, bytes: usize) -> c_int {
    call("cuMemAlloc", |state| {
        let found = state.alloc(current()?, bytes as u64)?;
        // SAFETY: the caller's contract.
        unsafe { put(addr, found) }
    })
}

/// `cuMemFree_v2`
#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(addr: u64) -> c_int {
    call("cuMemFree", |state| match crate::managed::free(addr) {
        true => Ok(()),
        false => state.free(addr),
    })
}

/// `cuMemAddressReserve`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAddressReserve(
    addr: *mut u64,
    bytes: usize,
    _align: usize,
    _hint: u64,
    _flags: c_ulonglong,
) -> c_int {
    call("cuMemAddressReserve", |state| {
        let found = state.reserve(bytes as u64)?;
        // SAFETY: the caller's contract.
        unsafe { put(addr, found) }
    })
}

/// `cuMemAddressFree`
#[unsafe(no_mangle)]
extern "C" fn cuMemAddressFree(addr: u64, bytes: usize) -> c_int {
    call("cuMemAddressFree", |state| state.unreserve(addr, bytes as u64))
}

/// `cuMemGetAllocationGranularity`
///
/// # Safety
///
/// As in the driver API: `bytes` is valid for writes, `prop` points to a `CUmemAllocationProp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAllocationGranularity(bytes: *mut usize, prop: *const Prop, _option: c_int) -> c_int {
    call("cuMemGetAllocationGranularity", |state| {
        // SAFETY: the caller's contract.
        unsafe { device_of(state, prop)? };
        // SAFETY: the caller's contract.
        unsafe { put(bytes, GRANULARITY as usize) }
    })
}

/// `cuMemCreate`
///
/// # Safety
///
/// As in the driver API: `handle` is valid for writes, `prop` points to a `CUmemAllocationProp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemCreate(handle: *mut u64, bytes: usize, prop: *const Prop, _flags: c_ulonglong) -> c_int {
    call("cuMemCreate", |state| {
        // SAFETY: the caller's contract.
        let device = unsafe { device_of(state, prop)? };
        // SAFETY: as above, and not null.
        let rdma = unsafe { (*prop).gpu_direct_rdma } != 0;
        let found = state.create(device, bytes as u64, rdma)?;
        // SAFETY: the caller's contract.
        unsafe { put(handle, found) }
    })
}

/// `cuMemRelease`
#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: u64) -> c_int {
    call("cuMemRelease", |state| state.release(handle))
}

/// `cuMemMap`
#[unsafe(no_mangle)]
extern "C" fn cuMemMap(addr: u64, bytes: usize, offset: usize, handle: u64, _flags: c_ulonglong) -> c_int {
    call("cuMemMap", |state| {
        if offset != 0 {
            return Err(result::NOT_SUPPORTED);
        }
        state.map(addr, bytes as u64, handle)
    })
}

/// `cuMemSetAccess`
///
/// # Safety
///
/// As in the driver API: `access` points to `count` `CUmemAccessDesc`s.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemSetAccess(addr: u64, bytes: usize, access: *const Access, count: usize) -> c_int {
    call("cuMemSetAccess", |state| {
        if access.is_null() || count == 0 {
            return Err(result::INVALID_VALUE);
        }
        // SAFETY: not null, so it points to so many descriptions by the caller's contract.
        let access = unsafe { std::slice::from_raw_parts(access, count) };
        if access.iter().any(|one| (one.location_kind, one.flags) != (1, 3)) {
            return Err(result::INVALID_VALUE);
        }
        let by: Result<Vec<i32>, i32> = access.iter().map(|one| state.device(one.location_id)).collect();
        state.set_access(addr, bytes as u64, &by?)
    })
}

/// `cuPointerGetAttribute`, with one attribute.
///
/// # Safety
///
/// As in the driver API: `value` is valid for the attribute.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttribute(value: *mut c_int, attribute: c_int, addr: u64) -> c_int {
    const IS_GPU_DIRECT_RDMA_CAPABLE: c_int = 15;
    call("cuPointerGetAttribute", |state| {
        if attribute != IS_GPU_DIRECT_RDMA_CAPABLE {
            return Err(result::NOT_SUPPORTED);
        }
        let capable = state.is_for_rdma(addr)?;
        // SAFETY: the caller's contract.
        unsafe { put(value, capable.into()) }
    })
}

/// `cuMemUnmap`
#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(addr: u64, bytes: usize) -> c_int {
    call("cuMemUnmap", |state| state.unmap(addr, bytes as u64))
}

/// `cuMemcpyHtoDAsync_v2`
///
/// # Safety
///
/// As in the driver API: `from` is valid for reads of `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64) -> c_int {
    call("cuMemcpyHtoDAsync", |state| {
        state.stream(stream)?;
        let mut from = from.cast::<u8>();
        state.pieces(to, bytes as u64, |piece| {
            // SAFETY: the pieces add up to `bytes`, which the caller made readable; device memory is our own.
            unsafe { std::ptr::copy_nonoverlapping(from, piece.as_mut_ptr(), piece.len()) };
            from = from.wrapping_add(piece.len());
        })
    })
}

/// `cuMemcpyHtoD_v2`
///
/// # Safety
///
/// As in the driver API: `from` is valid for reads of `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { cuMemcpyHtoDAsync_v2(to, from, bytes, 0) }
}

/// `cuMemcpyDtoHAsync_v2`
///
/// # Safety
///
/// As in the driver API: `to` is valid for writes of `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64) -> c_int {
    call("cuMemcpyDtoHAsync", |state| {
        state.stream(stream)?;
        let mut to = to.cast::<u8>();
        state.pieces(from, bytes as u64, |piece| {
            // SAFETY: the pieces add up to `bytes`, which the caller made writable; device memory is our own.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len()) };
            to = to.wrapping_add(piece.len());
        })
    })
}

/// `cuMemcpyDtoH_v2`
///
/// # Safety
///
/// As in the driver API: `to` is valid for writes of `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { cuMemcpyDtoHAsync_v2(to, from, bytes, 0) }
}

/// `cuMemsetD8Async`
#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(addr: u64, value: u8, count: usize, stream: u64) -> c_int {
    call("cuMemsetD8Async", |state| {
        state.stream(stream)?;
        state.pieces(addr, count as u64, |piece| piece.fill(value))
    })
}

/// `cuMemsetD32Async`
#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(addr: u64, value: c_uint, count: usize, stream: u64) -> c_int {
    call("cuMemsetD32Async", |state| {
        state.stream(stream)?;
        if !addr.is_multiple_of(4) {
            return Err(result::INVALID_VALUE);
        }
        let word = value.to_le_bytes();
        // Pieces begin and end at words: mappings are multiples of 512 bytes.
        state.pieces(addr, count as u64 * 4, |piece| {
            piece
                .chunks_mut(4)
                .for_each(|chunk| chunk.copy_from_slice(&word[..chunk.len()]));
        })
    })
}
