//! A place for the descriptor of a locked file. One at a time has it; a forked child finds it.

use std::os::fd::RawFd;

use super::atomic::{AtomicI32, AtomicU64, Ordering};

/// No descriptor.
pub(super) const FREE: RawFd = -1;
/// No descriptor, but no free place either.
const FILLING: RawFd = -2;
/// A descriptor that is there or not: it is being opened.
pub(super) const OPENING: RawFd = -3;

/// A descriptor, the number of the process that registered it, and the file that it is of: device and number.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) fd: AtomicI32,
    pub(super) process: AtomicU64,
    pub(super) file: [AtomicU64; 2],
}

impl Descriptor {
    /// Takes the place, if it is free, for a descriptor of this file that is opened next.
    pub(super) fn reserve(&self, process: u64, file: [u64; 2]) -> bool {
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
        // A child that is forked before has nothing to close, one that is forked from here on knows what.
        self.fd.store(OPENING, Ordering::Release);
        true
    }

    /// Registers that descriptor, or that there is none.
    pub(super) fn fill(&self, fd: RawFd) {
        self.fd.store(fd, Ordering::Release);
    }

    /// What is registered or [`OPENING`], if another process than this one did that: what a child has inherited, which nobody else takes.
    pub(super) fn inherited(&self, process: u64) -> Option<RawFd> {
        let fd = self.fd.load(Ordering::Acquire);
        ((fd >= 0 || fd == OPENING) && self.process.load(Ordering::Relaxed) != process).then_some(fd)
    }

    /// Takes a descriptor out: the file that it was registered with. Async-signal-safe.
    pub(super) fn take(&self, fd: RawFd) -> Option<[u64; 2]> {
        let file = [0, 1].map(|part| self.file[part].load(Ordering::Relaxed));
        // Only then is it another one's.
        let taken = self.fd.compare_exchange(fd, FREE, Ordering::Release, Ordering::Relaxed);
        taken.ok().map(|_| file)
    }
}
