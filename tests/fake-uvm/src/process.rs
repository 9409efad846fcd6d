//! The driver's use by a watched process.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::device::{UVM, Use};
use crate::memory::PAGE;

/// An open device, on which managed memory can be mapped. As in CUDA, both last until the process ends.
#[derive(Debug)]
pub struct Managed(File);

impl Managed {
    /// Opens the device and an address space, which has this number in scenarios.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open(root: &Path, space: u32) -> io::Result<Managed> {
        Managed::open_as(root, Use::Space(space))
    }

    /// Opens the second descriptor, which has no address space.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open_lifetime(root: &Path) -> io::Result<Managed> {
        Managed::open_as(root, Use::Lifetime)
    }

    fn open_as(root: &Path, what: Use) -> io::Result<Managed> {
        let file = File::options().read(true).write(true).open(root.join(UVM))?;
        what.set(file.as_raw_fd())?;
        Ok(Managed(file))
    }

    /// Returns the number of its descriptor.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Maps managed memory at an address that is not in use.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn map(&self, address: u64, pages: u64) -> io::Result<Memory> {
        // SAFETY: MAP_FIXED_NOREPLACE replaces no memory of this program.
        let start = unsafe {
            libc::mmap(
                address as *mut libc::c_void,
                (pages * PAGE) as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE,
                self.descriptor(),
                address as libc::off_t,
            )
        };
        match start {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            start => Ok(Memory {
                start: start.cast(),
                pages,
            }),
        }
    }
}

/// A range of managed memory. It stays mapped.
#[derive(Debug)]
pub struct Memory {
    start: *mut u8,
    pages: u64,
}

impl Memory {
    fn place(&self, pages: &Range<u64>) -> (*mut u8, usize) {
        assert!(pages.start <= pages.end && pages.end <= self.pages);
        let bytes = (pages.end - pages.start) * PAGE;
        (self.start.wrapping_add((pages.start * PAGE) as usize), bytes as usize)
    }

    /// Writes to pages, which brings them to the CPU.
    pub fn touch(&self, pages: Range<u64>) {
        let (start, bytes) = self.place(&pages);
        for offset in (0..bytes).step_by(PAGE as usize) {
            // SAFETY: the byte is in the mapping, which nobody else refers to.
            unsafe { start.add(offset).write_volatile(1) };
        }
    }

    /// Removes pages from the CPU's page table, as a move to the GPU does.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn leave(&self, pages: Range<u64>) -> io::Result<()> {
        let (start, bytes) = self.place(&pages);
        // SAFETY: the pages are of the mapping; they are shared with a file, so that not even their bytes are lost.
        match unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Forks a process that keeps all descriptors of this one and does nothing. It ends by itself after 20 s. Call this while the process has
/// a single thread.
///
/// # Errors
/// When the kernel refuses.
pub fn fork_sleeper() -> io::Result<u32> {
    // SAFETY: the child calls nothing but what is safe between fork and exec, and never returns.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: neither call takes an address; the signal's default ends the child.
            unsafe { libc::alarm(20) };
            loop {
                // SAFETY: as above.
                unsafe { libc::pause() };
            }
        }
        child => Ok(child as u32),
    }
}
