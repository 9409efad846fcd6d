//! Which process this is, in a line of forks.

use std::sync::atomic::{AtomicU64, Ordering};

use super::watch_forks;

/// The process something was made in. After a fork the child's copy can tell that it is one, at the cost of a load: in the child
/// mappings and locks are gone or lie, and a mutex may be held by a thread that does not exist there.
///
/// That holds for children of `fork` and, from Linux 4.14 on, for those that the C library does not know of: of `_Fork`, and of `clone`
/// without `CLONE_VM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

/// What is known of this process only: a forked child has zeros here, however it was forked ([`watch_forks`]). Alone in its pages, as the
/// kernel knows only pages. On ARM it may have been built with pages of 4, 16 or 64 KiB.
#[cfg_attr(target_arch = "aarch64", repr(C, align(65536)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(4096)))]
pub(super) struct Here {
    /// That of [`Process`], or 0 while nobody has asked.
    number: AtomicU64,
    /// The same as soon as somebody asks.
    agreed: AtomicU64,
}

pub(super) static HERE: Here = Here {
    number: AtomicU64::new(0),
    agreed: AtomicU64::new(0),
};

/// The last number that a process on the way here had. Children inherit it.
static LAST: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// The calling process. Waits for nobody, and is async-signal-safe in a process that has asked before, and in its children.
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
        // Threads that ask at the same time are of one process.
        let agreed = HERE
            .agreed
            .compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
        let number = agreed.map_or_else(|number| number, |_| next);
        // Before anything is made under this number: the children that inherit it have others.
        LAST.fetch_max(number, Ordering::Relaxed);
        HERE.number.store(number, Ordering::Release);
        Process(number)
    }

    /// The one with a [`number`](Process::number) that is kept where only numbers can be.
    pub fn numbered(number: u64) -> Process {
        Process(number)
    }

    /// 1 in the first process that asked, and more in each that was forked from one that had asked.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Whether it was forked from one that had asked before.
    pub fn is_forked(self) -> bool {
        self.0 > 1
    }

    /// Whether the calling process is still the same.
    #[inline(always)]
    pub fn is_current(self) -> bool {
        HERE.number.load(Ordering::Relaxed) == self.0
    }
}

impl Here {
    /// That of the calling process, or 0 if nobody has asked here yet.
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// What the kernel does in a child, where it cannot.
    pub(super) fn forget(&self) {
        self.number.store(0, Ordering::Relaxed);
        self.agreed.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wiped_is_whole_pages_and_nobody_elses() {
        let page = rustix::param::page_size();
        assert_eq!((size_of::<Here>() % page, (&raw const HERE).addr() % page), (0, 0));
    }
}
