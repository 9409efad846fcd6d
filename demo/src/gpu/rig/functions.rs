//! The kernels of the benchmarks, each loaded when it is first needed.

use std::collections::BTreeMap;
use std::sync::Arc;

use cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
use cudarc::driver::{CudaContext, result, sys};

use crate::gpu::modules::Modules;
use crate::gpu::{GpuError, while_doing};
use crate::kernels::{CHASE, CHASE_SHARED, Kernel, READ_L1, READ_SHARED};

/// The loaded functions, valid as long as this object.
///
/// The driver compiles PTX when it is loaded, which took 33 ms a kernel on average on the host of an H200 without the driver's cache. A run that is
/// stopped early does not wait for kernels that it never reached.
#[derive(Debug)]
pub(super) struct Functions {
    modules: Modules,
    /// By the name of their entry.
    loaded: BTreeMap<&'static str, sys::CUfunction>,
}

/// No shared memory, so that L1 gets all of the memory that the two share.
const ALL_L1: i32 = 0;
/// As much shared memory as there can be, in percent.
const ALL_SHARED: i32 = 100;

/// How kernels divide the memory of an SM between L1 and shared memory, in percent of shared memory. The others leave it to the driver.
const CARVED: [(Kernel, i32); 4] = [
    (CHASE, ALL_L1),
    (READ_L1, ALL_L1),
    (CHASE_SHARED, ALL_SHARED),
    (READ_SHARED, ALL_SHARED),
];

impl Functions {
    pub(super) fn new(context: &Arc<CudaContext>) -> Functions {
        Functions {
            modules: Modules::new(context),
            loaded: BTreeMap::new(),
        }
    }

    /// Returns a kernel's function, and loads it if this is its first use.
    pub(super) fn get(&mut self, kernel: Kernel) -> Result<sys::CUfunction, GpuError> {
        if let Some(function) = self.loaded.get(kernel.entry) {
            return Ok(*function);
        }
        let function = self.modules.load(kernel)?;
        if let Some((_, percent)) = CARVED.iter().find(|(carved, _)| carved.entry == kernel.entry) {
            carve(function, *percent)?;
        }
        self.loaded.insert(kernel.entry, function);
        Ok(function)
    }
}

/// Divides the memory of an SM between L1 and shared memory while the function runs.
fn carve(function: sys::CUfunction, percent_shared: i32) -> Result<(), GpuError> {
    let attribute = CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    // SAFETY: the function belongs to a module that is loaded.
    unsafe { result::function::set_function_attribute(function, attribute, percent_shared) }
        .map_err(while_doing("dividing L1 and shared memory"))
}
