//! The kernels of the benchmarks, loaded.

use std::sync::Arc;

use cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
use cudarc::driver::{CudaContext, result, sys};

use crate::gpu::modules::Modules;
use crate::gpu::{GpuError, while_doing};
use crate::kernels::{CHAIN, CHASE, CHASE_SHARED, COPY, MULTIPLY_ADD, READ, READ_L1, READ_SHARED, RING, WRITE};

/// The functions, valid as long as this object.
#[derive(Debug)]
pub(super) struct Functions {
    pub(super) ring: sys::CUfunction,
    pub(super) chase: sys::CUfunction,
    pub(super) chase_shared: sys::CUfunction,
    pub(super) chain: sys::CUfunction,
    pub(super) read: sys::CUfunction,
    pub(super) write: sys::CUfunction,
    pub(super) copy: sys::CUfunction,
    pub(super) read_l1: sys::CUfunction,
    pub(super) read_shared: sys::CUfunction,
    pub(super) multiply_add: sys::CUfunction,
    _modules: Modules,
}

/// No shared memory, so that L1 gets all of the memory that the two share.
const ALL_L1: i32 = 0;
/// As much shared memory as there can be, in percent.
const ALL_SHARED: i32 = 100;

impl Functions {
    pub(super) fn load(context: &Arc<CudaContext>) -> Result<Functions, GpuError> {
        let mut modules = Modules::new(context);
        let functions = Functions {
            ring: modules.load(RING)?,
            chase: modules.load(CHASE)?,
            chase_shared: modules.load(CHASE_SHARED)?,
            chain: modules.load(CHAIN)?,
            read: modules.load(READ)?,
            write: modules.load(WRITE)?,
            copy: modules.load(COPY)?,
            read_l1: modules.load(READ_L1)?,
            read_shared: modules.load(READ_SHARED)?,
            multiply_add: modules.load(MULTIPLY_ADD)?,
            _modules: modules,
        };
        carve(functions.chase, ALL_L1)?;
        carve(functions.read_l1, ALL_L1)?;
        carve(functions.chase_shared, ALL_SHARED)?;
        carve(functions.read_shared, ALL_SHARED)?;
        Ok(functions)
    }
}

/// Divides the memory of an SM between L1 and shared memory while the function runs.
fn carve(function: sys::CUfunction, percent_shared: i32) -> Result<(), GpuError> {
    let attribute = CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    // SAFETY: the function belongs to a module that is loaded.
    unsafe { result::function::set_function_attribute(function, attribute, percent_shared) }
        .map_err(while_doing("dividing L1 and shared memory"))
}
