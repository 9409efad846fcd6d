//! The driver's library, whichever way cudarc comes by it.
//!
//! cudarc loads it, and then has `culib`; or the program is linked with it, where another crate of the program asks for that (candle does),
//! and then cudarc has no such function. So the allocator looks for itself. It takes no lock of its own meanwhile: whoever waits for the dynamic
//! loader may be a library's constructor that allocates.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

/// The library, loaded for the process's life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Library(NonNull<c_void>);

/// The name that cudarc tries first, and the one that a driver has without a toolkit.
const NAMES: [&CStr; 2] = [c"libcuda.so", c"libcuda.so.1"];

impl Library {
    /// Loads it. Otherwise what the dynamic loader says of a driver that it finds and cannot load; `None`: it finds none.
    pub(super) fn load() -> Result<Library, Option<String>> {
        // What the program is linked with is what all others in it call, whatever a toolkit's folder has under the first name.
        if let Some(library) = open(c"libcuda.so.1", libc::RTLD_NOLOAD) {
            return Ok(Library(library));
        }
        let mut refusal = None;
        for name in NAMES {
            match open(name, 0) {
                Some(library) => return Ok(Library(library)),
                None => refusal = refusal.or_else(|| refused(name)),
            }
        }
        Err(refusal)
    }

    /// A function's address.
    pub(super) fn find(self, symbol: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the library is loaded; a name ends in a zero byte.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), symbol.as_ptr()) })
    }
}

fn open(name: &CStr, mode: c_int) -> Option<NonNull<c_void>> {
    // SAFETY: loads a shared library by name; the driver's initialisers are trusted as the driver is.
    NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL | mode) })
}

/// What the dynamic loader says of a driver which it has just not loaded; `None`: it finds none.
fn refused(name: &CStr) -> Option<String> {
    // SAFETY: no pointer goes in. What comes out is a string of this thread's until its next call of the loader, or null.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, so a C string, as above.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // Of a driver that lacks another library it is that one that is not found.
    let absent = text.contains("No such file or directory") && text.contains(&*name.to_string_lossy());
    (!absent).then(|| text.into_owned())
}
