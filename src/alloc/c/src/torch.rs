//! What else PyTorch asks of a pluggable allocator. Signatures: `torch/csrc/cuda/CUDAPluggableAllocator.h`.

use std::ffi::{c_int, c_void};

use gpumem::Callback;

use crate::boundary::{attempt, enter};
use crate::failure::Failure;
use crate::pools::{self, PoolId};
use crate::{cache, devices, filter, throw};

#[unsafe(no_mangle)]
extern "C" fn gpumem_init(device_count: c_int) {
    enter("gpumem_init", (), || match usize::try_from(device_count) {
        Ok(count) if count <= devices::MOST => Ok(()),
        _ => {
            let text = format!("{device_count} devices: at most {} are kept apart", devices::MOST);
            Err(Failure::misuse(text))
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_reset() {
    enter("gpumem_reset", (), || cache::release(-1).map(drop));
}

/// Less is no memory, or too little for any block, on whatever device. How much a device has is not asked: before the first allocation the
/// driver is not touched, so that a program may still fork.
const LEAST_FRACTION: f64 = 1e-6;

#[unsafe(no_mangle)]
extern "C" fn gpumem_memory_fraction(fraction: f64, device: c_int) {
    enter("gpumem_memory_fraction", (), || {
        let place = devices::place(device)?;
        if !(LEAST_FRACTION..=1.0).contains(&fraction) {
            return Err(Failure::misuse(format!(
                "a fraction of {fraction}: it must be at least {LEAST_FRACTION} and at most 1"
            )));
        }
        place.limit(fraction)
    });
}

/// # Safety
///
/// `size` is null or valid for one write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_base_alloc(ptr: *mut c_void, size: *mut usize) -> *mut c_void {
    let answer = |bytes: usize| {
        if !size.is_null() {
            // SAFETY: the caller's contract.
            unsafe { size.write(bytes) };
        }
    };
    enter("gpumem_base_alloc", std::ptr::null_mut(), || {
        answer(0);
        devices::not_forked()?;
        let addr = ptr.addr() as u64;
        let (_, owner) =
            devices::owner(addr).ok_or_else(|| Failure::misuse(format!("{ptr:p} is not a live allocation")))?;
        let base = owner.base_of_raw(addr)?;
        answer(base.bytes as usize);
        Ok(std::ptr::without_provenance_mut(base.addr as usize))
    })
}

/// Unwinds where a filter is of a PyTorch that is not known from inside: a graph that is captured without its pool would share its memory.
///
/// # Safety
///
/// `filter` is null or points to a `std::function<bool(cudaStream_t)>` of libstdc++.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn gpumem_begin_allocate_to_pool(device: c_int, id: PoolId, filter: *const c_void) {
    let call = "gpumem_begin_allocate_to_pool";
    if !filter.is_null()
        && let Err(failure) = attempt(call, filter::is_known)
    {
        return throw::as_pytorch(call, &failure);
    }
    enter(call, (), || {
        // SAFETY: the caller's contract.
        pools::begin(device, id, unsafe { filter::route(device, filter) }?)
    });
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_end_allocate_to_pool(device: c_int, id: PoolId) {
    enter("gpumem_end_allocate_to_pool", (), || pools::end(device, id));
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_release_pool(device: c_int, id: PoolId) {
    enter("gpumem_release_pool", (), || pools::release(device, id));
}

/// # Safety
///
/// `addrs` is valid for writes of `room` addresses, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_pool_held(device: c_int, id: PoolId, addrs: *mut u64, room: usize) -> i64 {
    enter("gpumem_pool_held", -1, || {
        let held = pools::pool(device, id)?.held();
        let room = if addrs.is_null() { 0 } else { room };
        for (at, block) in held.iter().take(room).enumerate() {
            // SAFETY: within the room, by the caller's contract.
            unsafe { addrs.add(at).write(block.addr) };
        }
        Ok(held.len() as i64)
    })
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_pool_uses(device: c_int, id: PoolId) -> i64 {
    enter("gpumem_pool_uses", -1, || Ok(pools::uses(device, id)? as i64))
}

type OomFn = unsafe extern "C" fn(c_int, usize);

static OOM_FN: Callback<OomFn> = Callback::none();

/// # Safety
///
/// The function may be called on any thread that allocates, until this is called again.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_set_oom_fn(function: Option<OomFn>) {
    enter("gpumem_set_oom_fn", (), || {
        OOM_FN.set(function);
        Ok(())
    });
}

/// Tells who wanted to know that a request found too little memory. Nothing of ours is held meanwhile.
pub(crate) fn tell_of_oom(device: c_int, size: usize) {
    // SAFETY: the contract of gpumem_set_oom_fn.
    OOM_FN.call(|function| unsafe { function(device, size) });
}
