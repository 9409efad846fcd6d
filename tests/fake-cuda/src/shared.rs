//! Memory that is shared with other processes. Its bytes are in an unlinked file, which is passed on as a descriptor or as a path.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::device::current;
use crate::state::call;
use crate::{put, result};

/// The bytes of physical memory.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// Memory of this process only.
    Own(Vec<u8>),
    /// A mapped file.
    Shared { file: File, at: *mut u8, len: usize },
}

// SAFETY: the value owns its mapping, and no other thread has the address.
unsafe impl Send for Bytes {}

impl Bytes {
    /// Maps a file.
    pub(crate) fn of(file: File) -> Result<Bytes, i32> {
        let len = file.metadata().map_err(|_| result::INVALID_VALUE)?.len() as usize;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where nothing is.
        let at = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0) };
        let at = at.map_err(|_| result::INVALID_VALUE)?.cast();
        Ok(Bytes::Shared { file, at, len })
    }

    /// Returns the file, if the memory is shared.
    pub(crate) fn file(&self) -> Option<&File> {
        match self {
            Bytes::Own(_) => None,
            Bytes::Shared { file, .. } => Some(file),
        }
    }

    /// Returns the file. Memory that was not shared is moved to one first.
    pub(crate) fn share(&mut self) -> Result<File, i32> {
        if let Bytes::Own(bytes) = self {
            let file = memfd_create("fake-cuda", MemfdFlags::CLOEXEC).map_err(|_| result::UNKNOWN)?;
            ftruncate(&file, bytes.len() as u64).map_err(|_| result::OUT_OF_MEMORY)?;
            let mut shared = Bytes::of(file.into())?;
            shared.copy_from_slice(bytes);
            *self = shared;
        }
        let file = self.file().ok_or(result::UNKNOWN)?;
        file.try_clone().map_err(|_| result::UNKNOWN)
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if let Bytes::Shared { at, len, .. } = self {
            // SAFETY: the value owns this mapping.
            let _ = unsafe { munmap(at.cast(), *len) };
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            // SAFETY: mapped for the life of the value. Other processes only write to it when the program asks them to, as to memory of a
            // GPU.
            Bytes::Shared { at, len, .. } => unsafe { std::slice::from_raw_parts(*at, *len) },
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            // SAFETY: as above.
            Bytes::Shared { at, len, .. } => unsafe { std::slice::from_raw_parts_mut(*at, *len) },
        }
    }
}

const POSIX_FILE_DESCRIPTOR: c_int = 1;

/// `cuMemExportToShareableHandle`
///
/// # Safety
///
/// As in the driver API: `to` is valid for a descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemExportToShareableHandle(
    to: *mut c_void,
    handle: u64,
    kind: c_int,
    _flags: c_ulonglong,
) -> c_int {
    call("cuMemExportToShareableHandle", |state| {
        if kind != POSIX_FILE_DESCRIPTOR {
            return Err(result::NOT_SUPPORTED);
        }
        let file = state.export(handle)?;
        // SAFETY: the caller's contract.
        unsafe { put(to.cast(), OwnedFd::from(file).into_raw_fd()) }
    })
}

/// `cuMemImportFromShareableHandle`
///
/// # Safety
///
/// As in the driver API: `handle` is valid for writes; `descriptor` is a file descriptor and not a pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemImportFromShareableHandle(handle: *mut u64, descriptor: *mut c_void, kind: c_int) -> c_int {
    call("cuMemImportFromShareableHandle", |state| {
        if kind != POSIX_FILE_DESCRIPTOR {
            return Err(result::NOT_SUPPORTED);
        }
        // SAFETY: the caller's contract. It stays the caller's.
        let file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor.addr() as c_int) });
        let file = file.try_clone().map_err(|_| result::INVALID_VALUE)?;
        let found = state.import(current()?, file)?;
        // SAFETY: the caller's contract.
        unsafe { put(handle, found) }
    })
}

/// `CUipcMemHandle`: here a path that ends in a zero byte.
#[repr(C)]
#[derive(Clone, Copy)]
struct IpcHandle([u8; 64]);

/// `cuIpcGetMemHandle`
///
/// # Safety
///
/// As in the driver API: `handle` is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuIpcGetMemHandle(handle: *mut IpcHandle, addr: u64) -> c_int {
    call("cuIpcGetMemHandle", |state| {
        let descriptor = state.export_plain(addr)?;
        let mut bytes = [0; 64];
        let path = format!("/proc/{}/fd/{descriptor}", std::process::id());
        bytes[..path.len()].copy_from_slice(path.as_bytes());
        // SAFETY: the caller's contract.
        unsafe { put(handle, IpcHandle(bytes)) }
    })
}

/// `cuIpcOpenMemHandle_v2`
///
/// # Safety
///
/// As in the driver API: `addr` is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuIpcOpenMemHandle_v2(addr: *mut u64, handle: IpcHandle, _flags: c_uint) -> c_int {
    call("cuIpcOpenMemHandle", |state| {
        let path = handle.0.split(|byte| *byte == 0).next().unwrap_or_default();
        let path = str::from_utf8(path).map_err(|_| result::INVALID_VALUE)?;
        let own = format!("/proc/{}/", std::process::id());
        if path.starts_with(&own) {
            return Err(result::INVALID_CONTEXT);
        }
        let file = File::options().read(true).write(true).open(path);
        let found = state.open_plain(current()?, file.map_err(|_| result::INVALID_VALUE)?)?;
        // SAFETY: the caller's contract.
        unsafe { put(addr, found) }
    })
}

/// `cuIpcCloseMemHandle`
#[unsafe(no_mangle)]
extern "C" fn cuIpcCloseMemHandle(addr: u64) -> c_int {
    call("cuIpcCloseMemHandle", |state| state.free(addr))
}
