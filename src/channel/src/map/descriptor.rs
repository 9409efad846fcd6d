//! A place for the descriptor of a locked file. One at a time has it; a forked child finds it.

use std::os::fd::RawFd;

use super::atomic::{AtomicI32, AtomicU64, Ordering};

/// No descriptor.
pub(super) const FREE: RawFd = -1;
/// No descriptor, but no free place either.
const FILLING: RawFd = -2;

/// A descriptor, the number of the process that registered it, and the file that it is of: device and number.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) fd: AtomicI32,
    pub(super) process: AtomicU64,
    pub(super) file: [AtomicU64; 2],
}

impl Descriptor {
    /// Registers a descriptor, if the place is free.
    pub(super) fn fill(&self, fd: RawFd, process: u64, file: [u64; 2]) -> bool {
        // Whoever had it before has read what file that was.
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
        // A child that is forked before closes nothing, one that is forked from here on knows what.
        self.fd.store(fd, Ordering::Release);
        true
    }

    /// What is registered, if another process than this one did that: what a child has inherited, which nobody else takes.
    pub(super) fn inherited(&self, process: u64) -> Option<RawFd> {
        let fd = self.fd.load(Ordering::Acquire);
        (fd >= 0 && self.process.load(Ordering::Relaxed) != process).then_some(fd)
    }

    /// Takes a descriptor out: the file that it was registered with. Async-signal-safe.
    pub(super) fn take(&self, fd: RawFd) -> Option<[u64; 2]> {
        let file = [0, 1].map(|part| self.file[part].load(Ordering::Relaxed));
        // Only then is it another one's.
        let taken = self.fd.compare_exchange(fd, FREE, Ordering::Release, Ordering::Relaxed);
        taken.ok().map(|_| file)
    }
}
