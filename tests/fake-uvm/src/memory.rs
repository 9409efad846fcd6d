//! The driver's access to memory of the calling program.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64};

pub(crate) const PAGE: u64 = 4096;

/// An address in the calling program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller(pub(crate) u64);

impl Caller {
    /// Copies from the caller, like the kernel's `copy_from_user`.
    ///
    /// # Errors
    /// `EFAULT` if nothing is mapped there.
    pub(crate) fn copy_in(self, bytes: &mut [u8]) -> io::Result<()> {
        self.copy(bytes.as_mut_ptr(), bytes.len(), libc::process_vm_readv)
    }

    /// Copies to the caller.
    ///
    /// # Errors
    /// As [`copy_in`](Self::copy_in).
    pub(crate) fn copy_out(self, bytes: &[u8]) -> io::Result<()> {
        self.copy(bytes.as_ptr().cast_mut(), bytes.len(), libc::process_vm_writev)
    }

    fn copy(self, ours: *mut u8, bytes: usize, call: Vectored) -> io::Result<()> {
        let part = |base| libc::iovec {
            iov_base: base,
            iov_len: bytes,
        };
        let (local, remote) = (part(ours.cast()), part(self.0 as *mut libc::c_void));
        // SAFETY: the local part is a slice of this program, which the call writes to only if the slice is mutable. The kernel checks the
        // remote part, which is of this program too: one that is not mapped is an error and not a fault.
        let copied = unsafe { call(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(copied) {
            Ok(copied) if copied == bytes => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        }
    }
}

type Vectored = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> libc::ssize_t;

/// A second mapping of shared memory of the caller. It stays valid when the caller unmaps its own, as the kernel's pinned pages do.
#[derive(Debug)]
pub(crate) struct Alias {
    start: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; all access is atomic.
unsafe impl Send for Alias {}
// SAFETY: as above.
unsafe impl Sync for Alias {}

impl Alias {
    /// Maps whole pages.
    ///
    /// # Errors
    /// If they are not shared memory of the caller.
    pub(crate) fn of(address: u64, bytes: usize) -> io::Result<Alias> {
        // SAFETY: a length of 0 makes the kernel map the same shared pages once more, at an address that it chooses. Nothing is unmapped.
        let start = unsafe { libc::mremap(address as *mut libc::c_void, 0, bytes, libc::MREMAP_MAYMOVE) };
        match start {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            start => Ok(Alias { start, bytes }),
        }
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned and lives as long as `self`; all access to it is atomic.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.bytes / 8) }
    }

    pub(crate) fn halves(&self) -> &[AtomicU32] {
        // SAFETY: as in `words`. No word is used at both widths.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.bytes / 4) }
    }
}

impl Drop for Alias {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length by `of`, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}
