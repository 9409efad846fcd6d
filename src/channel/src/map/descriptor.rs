//! An entry for the descriptor of a locked file. One file at a time uses it; a forked child reads it.

use std::os::fd::RawFd;

use super::atomic::{AtomicI32, AtomicU64, Ordering};

/// The entry is free.
pub(super) const FREE: RawFd = -1;
/// The entry is reserved, but has no descriptor yet.
const FILLING: RawFd = -2;
/// The descriptor is being opened: it may exist or not.
pub(super) const OPENING: RawFd = -3;

/// A descriptor, the number of the process that registered it, and the device and inode of its file.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) fd: AtomicI32,
    pub(super) process: AtomicU64,
    pub(super) file: [AtomicU64; 2],
}

impl Descriptor {
    /// Reserves the entry, if it is free, for a descriptor of this file that is opened next.
    pub(super) fn reserve(&self, process: u64, file: [u64; 2]) -> bool {
        // The previous user has read which file it was.
        let free = self
            .fd
            .compare_exchange(FREE, FILLING, Ordering::Acquire, Ordering::Relaxed);
        if free.is_err() {
            return false;
        }
        self.process.store(process, Ordering::Relaxed);
        for (part, number) in self.file.iter().zip(file) {
            part.store(number, Ordering::Relaxed);
        }
        // A child forked before this has nothing to close; one forked after it knows the file.
        self.fd.store(OPENING, Ordering::Release);
        true
    }

    /// Registers the descriptor, or [`FREE`] if opening failed.
    pub(super) fn fill(&self, fd: RawFd) {
        self.fd.store(fd, Ordering::Release);
    }

    /// Returns the registered descriptor or [`OPENING`] if another process registered it: that is one inherited by a
    /// forked child.
    pub(super) fn inherited(&self, process: u64) -> Option<RawFd> {
        let fd = self.fd.load(Ordering::Acquire);
        ((fd >= 0 || fd == OPENING) && self.process.load(Ordering::Relaxed) != process).then_some(fd)
    }

    /// Removes a descriptor, and returns the file that it was registered with. Async-signal-safe.
    pub(super) fn take(&self, fd: RawFd) -> Option<[u64; 2]> {
        let file = [0, 1].map(|part| self.file[part].load(Ordering::Relaxed));
        // Only after this can another thread reserve the entry.
        let taken = self.fd.compare_exchange(fd, FREE, Ordering::Release, Ordering::Relaxed);
        taken.ok().map(|_| file)
    }
}
