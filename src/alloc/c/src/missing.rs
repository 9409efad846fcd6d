//! What PyTorch asks of an allocator and this one cannot do yet: refused in words, never done half.

use std::sync::atomic::Ordering;

use crate::devices::Place;
use crate::failure::Failure;

const NO_POOLS: &str = "private pools (CUDA graphs, torch.cuda.MemPool) are not supported yet";

/// Refuses a pool. What is allocated until it is ended would belong to it, and a graph that was captured would use memory that
/// others get: so until then nothing is allocated on the device.
pub(crate) fn begin_pool(place: &Place) -> Result<(), Failure> {
    place.pools.fetch_add(1, Ordering::Relaxed);
    Err(Failure::missing(NO_POOLS))
}

/// Ends what [`begin_pool`] began.
pub(crate) fn end_pool(place: &Place) -> Result<(), Failure> {
    let begun = |pools: u32| pools.checked_sub(1);
    match place.pools.fetch_update(Ordering::Relaxed, Ordering::Relaxed, begun) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::misuse("no pool was begun on this device")),
    }
}

/// Whether memory may be handed out.
#[inline]
pub(crate) fn no_pool(place: &Place) -> Result<(), Failure> {
    match place.pools.load(Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err(Failure::missing(NO_POOLS)),
    }
}
