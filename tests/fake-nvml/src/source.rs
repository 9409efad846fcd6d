//! The scenario's file, which is read again when it changed.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nvml_wrapper_sys::bindings::{nvmlReturn_enum_NVML_ERROR_UNKNOWN, nvmlReturn_t};

use crate::world::World;
use crate::{library, parse};

/// Identifies one version of the scenario file. It includes the inode, so that a replacement within one tick of the clock is noticed.
type Version = (u64, u64, i64, i64);

struct Cached {
    version: Option<Version>,
    world: Option<Result<Arc<World>, ()>>,
}

static CACHED: Mutex<Cached> = Mutex::new(Cached {
    version: None,
    world: None,
});

/// Returns the current world.
pub(crate) fn world() -> Result<Arc<World>, nvmlReturn_t> {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| this_library().map(|path| library::scenario(&path)));
    let version = file.as_ref().and_then(|path| version(path));
    let mut cached = CACHED.lock().unwrap_or_else(PoisonError::into_inner);
    let world = match &cached.world {
        Some(world) if cached.version == version => world.clone(),
        _ => {
            let file = file.as_deref().filter(|_| version.is_some());
            let world = load(file).map(Arc::new).map_err(|why| eprintln!("fake NVML: {why}"));
            *cached = Cached {
                version,
                world: Some(world.clone()),
            };
            world
        }
    };
    world.map_err(|()| nvmlReturn_enum_NVML_ERROR_UNKNOWN)
}

fn version(path: &Path) -> Option<Version> {
    let m = std::fs::metadata(path).ok()?;
    Some((m.ino(), m.size(), m.mtime(), m.mtime_nsec()))
}

fn load(file: Option<&Path>) -> Result<World, String> {
    let text = match file {
        Some(path) => std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?,
        None => String::new(),
    };
    parse::world(&text)
}

/// Returns the file this library was loaded from.
fn this_library() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = this_library as fn() -> Option<PathBuf> as *const libc::c_void;
    // SAFETY: `info` is valid for the call; the address is one of this library's functions.
    if unsafe { libc::dladdr(here, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: success: dladdr filled the structure, which was zeroed before.
    let name = unsafe { info.assume_init() }.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: dladdr's name is a string of the loader, which lives as long as this library.
    let name = unsafe { CStr::from_ptr(name) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}
