//! The library's file, loaded and not called yet.

use std::ffi::OsStr;

use gpumem_text::clean_line;
use nvml_wrapper_sys::bindings::NvmlLib;

use super::Code;

/// The words of the loader.
type LoadError = String;

/// A library that is loaded. The wrapper loads and initialises at one stroke, and says by one error that either failed;
/// the loader gives it this same library.
pub(in crate::nvml) struct Library(NvmlLib);

impl Library {
    /// Loads a library by its path, or by a name that the loader looks for.
    pub(in crate::nvml) fn load(name: &OsStr) -> Result<Library, LoadError> {
        // SAFETY: loading runs the library's initialisers; that the driver's library may be loaded is the premise of
        // using NVML at all.
        let lib = unsafe { NvmlLib::new(name) };
        lib.map(Library).map_err(|e| clean_line(e.to_string().as_bytes(), 300))
    }

    /// Whether it has the function that ends its use: the wrapper panics where it has not.
    pub(super) fn can_shut_down(&self) -> Result<(), Code> {
        match self.0.nvmlShutdown {
            Ok(_) => Ok(()),
            Err(_) => Err(Code::FUNCTION_NOT_FOUND),
        }
    }
}
