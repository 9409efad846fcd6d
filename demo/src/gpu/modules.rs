//! Loading the committed PTX into a context.

use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError, result, sys};

use super::{GpuError, while_doing};
use crate::kernels::Kernel;

/// Kernels that are loaded into a context, and unloaded with this.
#[derive(Debug)]
pub(super) struct Modules {
    context: Arc<CudaContext>,
    modules: Vec<sys::CUmodule>,
}

impl Modules {
    pub(super) fn new(context: &Arc<CudaContext>) -> Modules {
        Modules {
            context: Arc::clone(context),
            modules: Vec::new(),
        }
    }

    /// Loads a kernel and binds the context to this thread. The function is valid as long as this object.
    ///
    /// # Errors
    /// When the driver refuses it, for example because it is older than R525.
    pub(super) fn load(&mut self, kernel: Kernel) -> Result<sys::CUfunction, GpuError> {
        let text = |s: &str| CString::new(s).map_err(|_| DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE));
        let mut load = || {
            self.context.bind_to_thread()?;
            let ptx = text(kernel.ptx)?;
            // SAFETY: the image is a NUL-terminated string that outlives the call, as the driver wants PTX.
            let module = unsafe { result::module::load_data(ptx.as_ptr().cast()) }?;
            self.modules.push(module);
            // SAFETY: the module was loaded just now and lives until `drop`.
            unsafe { result::module::get_function(module, text(kernel.entry)?) }
        };
        load().map_err(while_doing("loading a kernel (drivers from R525 on take it)"))
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        // A context that is broken or gone has freed them already.
        if self.context.synchronize().is_err() {
            return;
        }
        for module in self.modules.drain(..) {
            // SAFETY: the module was loaded by this object, once, and no kernel of it runs any more.
            let _ = unsafe { result::module::unload(module) };
        }
    }
}
