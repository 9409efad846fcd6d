//! What is cached goes back, or together.

use std::ffi::c_int;

use gpumem::{Allocator, Error};

use crate::boundary::enter;
use crate::failure::Failure;
use crate::{devices, pools};

#[unsafe(no_mangle)]
extern "C" fn gpumem_empty_cache(device: c_int) -> i64 {
    enter("gpumem_empty_cache", -1, || release(device))
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_compact(device: c_int) -> i64 {
    enter("gpumem_compact", -1, || {
        each(device, |allocator| Ok(allocator.compact()?.released))
    })
}

/// Gives the cache of one device, or of all (-1), back to the driver; the bytes that came free.
pub(crate) fn release(device: c_int) -> Result<i64, Failure> {
    each(device, Allocator::release_cached)
}

/// Does something on one device, or on all, and adds up its bytes. An error on one does not keep it from the others.
fn each(device: c_int, work: impl Fn(&Allocator) -> Result<u64, Error>) -> Result<i64, Failure> {
    let mut bytes = 0u64;
    let mut failure = None;
    for (place, allocator) in devices::chosen_places(device)? {
        pools::release_lost(place, allocator);
        match work(allocator) {
            Ok(more) => bytes += more,
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(i64::try_from(bytes).unwrap_or(i64::MAX)),
    }
}
