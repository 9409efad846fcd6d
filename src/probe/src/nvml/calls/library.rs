//! The library's file: loaded, but not yet called.

use std::ffi::OsStr;

use gpumem_text::clean_line;
use nvml_wrapper_sys::bindings::NvmlLib;

use super::Code;

/// The loader's error message.
type LoadError = String;

/// A loaded library. The wrapper loads and initialises in one call, and has one error for both. When it loads the same
/// name again, the loader returns this library.
pub(in crate::nvml) struct Library(NvmlLib);

impl Library {
    /// Loads a library by its path, or by a name that the loader searches for.
    pub(in crate::nvml) fn load(name: &OsStr) -> Result<Library, LoadError> {
        // SAFETY: loading runs the library's initialisers; that the driver's library may be loaded is the premise of
        // using NVML at all.
        let lib = unsafe { NvmlLib::new(name) };
        lib.map(Library).map_err(|e| clean_line(e.to_string().as_bytes(), 300))
    }

    /// Checks that the library has the shutdown function: the wrapper panics without it.
    pub(super) fn can_shut_down(&self) -> Result<(), Code> {
        match self.0.nvmlShutdown {
            Ok(_) => Ok(()),
            Err(_) => Err(Code::FUNCTION_NOT_FOUND),
        }
    }
}
