//! The system calls of the unified-memory interface that neither the standard library nor `rustix` wraps.
//!
//! The requests go through libc's `ioctl`, not through a raw system call, so that a test can put a fake driver in front of it.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::PAGE;

/// A shared, writable mapping that the driver may pin and write to.
///
/// The driver writes to it at any time, so it is read as atomics only.
#[derive(Debug)]
pub(super) struct Shared {
    start: NonNull<u8>,
    bytes: usize,
}

impl Shared {
    /// Maps `bytes` of `file` from `offset`. Both must be whole pages.
    ///
    /// # Errors
    /// When the kernel refuses, or when the numbers are not whole pages of at least one.
    pub(super) fn of_file(file: &File, offset: u64, bytes: usize) -> io::Result<Shared> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        Shared::map(bytes, libc::MAP_SHARED, file.as_raw_fd(), offset)
    }

    /// Maps `bytes` of zeroes that belong to no file.
    ///
    /// # Errors
    /// As [`of_file`](Self::of_file).
    pub(super) fn anonymous(bytes: usize) -> io::Result<Shared> {
        Shared::map(bytes, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0)
    }

    fn map(bytes: usize, flags: i32, fd: i32, offset: libc::off_t) -> io::Result<Shared> {
        if bytes == 0 || !(bytes as u64).is_multiple_of(PAGE) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the kernel chooses the address, so no memory of this program is replaced; it checks the rest.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Shared { start, bytes })
    }

    /// Returns the address to pass to the driver.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Returns the mapping as words of 64 bits.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, lives as long as `self`, and all access from Rust is atomic. Any bits are a value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes / 8) }
    }

    /// Returns the mapping as words of 32 bits.
    pub(super) fn halves(&self) -> &[AtomicU32] {
        // SAFETY: as in `words`. No word is used at both widths.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes / 4) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length by `map`, and what borrows from it ended before.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

// SAFETY: a mapping belongs to the process, not to a thread; all access is atomic.
unsafe impl Send for Shared {}

/// Sends a request to the driver with its argument. The driver writes its answer into the same bytes.
///
/// # Errors
/// When the call itself fails. The driver's own status is a word of the answer.
pub(super) fn request<const N: usize>(fd: BorrowedFd<'_>, number: u32, argument: &mut Aligned<N>) -> io::Result<()> {
    // SAFETY: the argument is as long as the longest form of the request in any driver series (see `abi`), and 8-byte aligned.
    // Addresses in it are of mappings that live until the descriptor is closed, or until this call returns.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), number.into(), argument.0.as_mut_ptr()) };
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        n => Err(io::Error::other(format!("the driver answered {n}"))),
    }
}

/// The argument of a request.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aligned<const N: usize>(pub(super) [u8; N]);

/// A run of pages that `PAGEMAP_SCAN` found: first byte, end, and its categories.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageRegion {
    pub(super) start: u64,
    pub(super) end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of `linux/fs.h`, Linux 6.7.
#[repr(C)]
#[derive(Debug, Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// The category of pages that this program asks for.
const PAGE_IS_PRESENT: u64 = 1 << 3;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u32 = 0xc060_6610;

/// Finds the pages of `start..end` that are present, as runs. Returns how many runs there are and where the walk ended: before
/// `end` when `found` was full.
///
/// # Errors
/// `ENOTTY` before Linux 6.7; else as the kernel says.
pub(super) fn scan_present(
    pagemap: &File,
    (start, end): (u64, u64),
    found: &mut [PageRegion],
) -> io::Result<(usize, u64)> {
    let mut argument = ScanArgument {
        size: size_of::<ScanArgument>() as u64,
        start,
        end,
        regions: found.as_mut_ptr() as u64,
        regions_len: found.len() as u64,
        category_mask: PAGE_IS_PRESENT,
        return_mask: PAGE_IS_PRESENT,
        ..ScanArgument::default()
    };
    // SAFETY: the argument has the layout that the request names with its size, and the regions live until the call returns.
    let result = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN.into(), &raw mut argument) };
    match usize::try_from(result) {
        Ok(count) => Ok((count.min(found.len()), argument.walk_end)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}
