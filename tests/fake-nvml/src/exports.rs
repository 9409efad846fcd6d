//! The exported functions, with the signatures of nvml.h, from which `nvml-wrapper-sys` is generated.
//!
//! A GPU's handle is its index + 1; a MIG device's is (MIG index + 1) << 16 plus its GPU's. Handles are never followed.
//!
//! Every pointer argument follows NVML's own contract: valid for the length said beside it, or null where NVML allows
//! null.

mod device;
mod mig;
mod processes;
mod system;

use std::ffi::{c_char, c_uint};
use std::sync::Arc;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE, nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t,
};

use crate::source;
use crate::world::{Answer, Gpu, World};

fn code(answer: Answer) -> nvmlReturn_t {
    answer.err().unwrap_or(nvmlReturn_enum_NVML_SUCCESS)
}

/// Returns the world, if its driver answers calls.
fn answering() -> Result<Arc<World>, nvmlReturn_t> {
    let world = source::world()?;
    say(&world);
    world.calls?;
    Ok(world)
}

/// Prints what a stub prints when it is called.
fn say(world: &World) {
    if !world.says.is_empty() {
        println!("{}", world.says);
    }
}

/// Runs `f` on the GPU of a handle, which may be a MIG device's; the second argument is the MIG index.
fn with_gpu<T>(
    device: nvmlDevice_t,
    f: impl FnOnce(&Gpu, Option<u32>) -> Result<T, nvmlReturn_t>,
) -> Result<T, nvmlReturn_t> {
    let world = answering()?;
    let handle = device as usize;
    let gpu = (handle & 0xffff).checked_sub(1).and_then(|i| world.gpus.get(i));
    let gpu = gpu.ok_or(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)?;
    gpu.state?;
    gpu.answers?;
    let mig = (handle >> 16).checked_sub(1).map(|i| i as u32);
    if mig.is_some_and(|i| i >= gpu.mig) {
        return Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
    }
    f(gpu, mig)
}

/// Writes `value` where the caller asked for it.
///
/// # Safety
/// `at` is null or valid for writing a `T`.
unsafe fn put<T>(at: *mut T, value: T) -> Answer {
    if at.is_null() {
        return Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: not null, so valid for a write by this function's contract.
    unsafe { at.write(value) };
    Ok(())
}

/// Writes text and a closing zero.
///
/// # Safety
/// `at` is null or valid for writing `length` bytes.
unsafe fn put_text(at: *mut c_char, length: c_uint, text: &[u8]) -> Answer {
    if at.is_null() {
        return Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
    }
    // SAFETY: the text and its closing zero fit into the `length` bytes that are valid by this function's contract.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), at, text.len());
        at.add(text.len()).write(0);
    }
    Ok(())
}
