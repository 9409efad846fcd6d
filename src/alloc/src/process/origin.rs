//! Which process something began in, where that is kept in a static.

use std::sync::atomic::{AtomicU64, Ordering};

use gpumem_channel::Process;

/// The process that something began in, if it has begun. Its forked children know that they are others: not by the system's number, which in
/// a PID namespace of its own a child may have from its parent.
#[derive(Debug, Default)]
pub struct Origin(AtomicU64);

impl Origin {
    /// Of nothing that has begun.
    pub const fn new() -> Origin {
        Origin(AtomicU64::new(0))
    }

    /// It begins here, if it has not begun. Waits for nobody.
    pub fn begin(&self) {
        if self.0.load(Ordering::Relaxed) == 0 {
            let us = Process::current().number();
            // Or another thread, or a process that this one was forked from, was first.
            let _ = self.0.compare_exchange(0, us, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Whether it began in a process that this one was forked from.
    pub fn is_elsewhere(&self) -> bool {
        let origin = self.0.load(Ordering::Relaxed);
        origin != 0 && !Process::numbered(origin).is_current()
    }
}
