//! Managed memory: the host's own, which never moves.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::{Mutex, PoisonError};

use crate::state::call;
use crate::{put, result};

/// The allocations by address. Pages of 256 bytes give each the alignment that the driver promises.
static ALLOCATIONS: Mutex<BTreeMap<u64, Box<[Page]>>> = Mutex::new(BTreeMap::new());

#[repr(align(256))]
#[derive(Clone)]
struct Page {
    _bytes: [u8; 256],
}

/// Frees an allocation, if there is one at that address.
pub(crate) fn free(addr: u64) -> bool {
    let mut allocations = ALLOCATIONS.lock().unwrap_or_else(PoisonError::into_inner);
    allocations.remove(&addr).is_some()
}

/// Checks that a range lies in one allocation.
fn check(addr: u64, bytes: usize) -> Result<(), i32> {
    let allocations = ALLOCATIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let below = allocations.range(..=addr).next_back();
    let within = below.is_some_and(|(first, pages)| {
        let end = addr.checked_add(bytes as u64);
        end.is_some_and(|end| end <= first + size_of_val(&**pages) as u64)
    });
    if within { Ok(()) } else { Err(result::INVALID_VALUE) }
}

/// `cuMemAllocManaged`
///
/// # Safety
///
/// As in the driver API: the pointer is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocManaged(addr: *mut u64, bytes: usize, flags: c_uint) -> c_int {
    call("cuMemAllocManaged", |_| {
        if bytes == 0 || !(1..=4).contains(&flags) {
            return Err(result::INVALID_VALUE);
        }
        let pages = vec![Page { _bytes: [0; 256] }; bytes.div_ceil(256)].into_boxed_slice();
        let first = pages.as_ptr().expose_provenance() as u64;
        // SAFETY: the caller's contract.
        unsafe { put(addr, first)? };
        let mut allocations = ALLOCATIONS.lock().unwrap_or_else(PoisonError::into_inner);
        allocations.insert(first, pages);
        Ok(())
    })
}

/// `cuMemPrefetchAsync`
#[unsafe(no_mangle)]
extern "C" fn cuMemPrefetchAsync(addr: u64, bytes: usize, to: c_int, stream: u64) -> c_int {
    call("cuMemPrefetchAsync", |state| {
        state.stream(stream)?;
        if to != -1 {
            state.device(to)?;
        }
        check(addr, bytes)
    })
}

/// `cuMemAdvise`
#[unsafe(no_mangle)]
extern "C" fn cuMemAdvise(addr: u64, bytes: usize, advice: c_int, device: c_int) -> c_int {
    call("cuMemAdvise", |state| {
        if device != -1 {
            state.device(device)?;
        }
        match advice {
            1..=6 => check(addr, bytes),
            _ => Err(result::INVALID_VALUE),
        }
    })
}

/// `cuMemDiscardBatchAsync`
///
/// # Safety
///
/// As in the driver API: both arrays have `count` entries.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemDiscardBatchAsync(
    addrs: *const u64,
    bytes: *const usize,
    count: usize,
    flags: c_ulonglong,
    stream: u64,
) -> c_int {
    call("cuMemDiscardBatchAsync", |state| {
        state.stream(stream)?;
        // Calls for batches refuse the legacy default stream.
        if addrs.is_null() || bytes.is_null() || flags != 0 || stream <= 1 {
            return Err(result::INVALID_VALUE);
        }
        (0..count).try_for_each(|n| {
            // SAFETY: the caller's contract.
            let (addr, bytes) = unsafe { (addrs.add(n).read(), bytes.add(n).read()) };
            check(addr, bytes)
        })
    })
}
