//! Identifies the current process among its forked relatives.

use std::sync::atomic::{AtomicU64, Ordering};

use super::watch_forks;

/// The process in which something was made. After a fork, the child's copy can tell that it is a copy, at the cost of a
/// load. In the child, mappings and locks are gone or stale, and a mutex may be held by a thread that does not exist
/// there.
///
/// This works for children of `fork` and, from Linux 4.14 on, for children of `_Fork` and of `clone` without
/// `CLONE_VM`, for which the C library runs no handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

/// Data of this process only: a forked child has zeros here, however it was forked ([`watch_forks`]). It fills whole
/// pages, because the kernel wipes whole pages. ARM kernels have pages of 4, 16 or 64 KiB.
#[cfg_attr(target_arch = "aarch64", repr(C, align(65536)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(4096)))]
pub(super) struct Here {
    /// The number of this [`Process`], or 0 before the first call.
    number: AtomicU64,
    /// The number that concurrent first calls agree on.
    agreed: AtomicU64,
}

pub(super) static HERE: Here = Here {
    number: AtomicU64::new(0),
    agreed: AtomicU64::new(0),
};

/// The last number used by this process or its ancestors. Children inherit it.
static LAST: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// Returns the calling process. Does not wait. Async-signal-safe in a process that has called it before, and in its
    /// children.
    pub fn current() -> Process {
        match HERE.number() {
            0 => Process::first(),
            number => Process(number),
        }
    }

    #[cold]
    fn first() -> Process {
        watch_forks();
        let next = LAST.load(Ordering::Relaxed) + 1;
        // Threads that call this at the same time must get the same number.
        let agreed = HERE
            .agreed
            .compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
        let number = agreed.map_or_else(|number| number, |_| next);
        // Before anything is made under this number, so that children get other numbers.
        LAST.fetch_max(number, Ordering::Relaxed);
        HERE.number.store(number, Ordering::Release);
        Process(number)
    }

    /// Restores a process from its [`number`](Process::number).
    pub fn numbered(number: u64) -> Process {
        Process(number)
    }

    /// Returns its number: 1 in the first process that called [`Process::current`], and more in each process forked
    /// from one that had.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Whether it was forked from a process that had called [`Process::current`].
    pub fn is_forked(self) -> bool {
        self.0 > 1
    }

    /// Whether this is the calling process.
    #[inline(always)]
    pub fn is_current(self) -> bool {
        HERE.number.load(Ordering::Relaxed) == self.0
    }
}

impl Here {
    /// Returns the number of the calling process, or 0 before the first call.
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Wipes the data in a child on kernels that do not do it themselves.
    pub(super) fn forget(&self) {
        self.number.store(0, Ordering::Relaxed);
        self.agreed.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wiped_data_fills_whole_pages() {
        let page = rustix::param::page_size();
        assert_eq!((size_of::<Here>() % page, (&raw const HERE).addr() % page), (0, 0));
    }
}
