//! A GPU for tests whose times are about those of an H100.

use crate::rig::claims::{Accesses, Allocations, ClaimRig, Copied, Copies, Malloc};
use crate::rig::{Card, RigError, Route};

/// The GPU.
pub(super) struct Fake {
    card: Card,
    /// Calls so far.
    pub(super) calls: u32,
    /// From this call on kernels take twice as long.
    pub(super) busy_from: u32,
    /// From this call on everything fails.
    pub(super) broken_from: u32,
}

impl Fake {
    pub(super) fn new() -> Fake {
        Fake {
            card: Card {
                name: "NVIDIA H100 80GB HBM3".into(),
                driver: "580.159.04".into(),
                ..Card::default()
            },
            calls: 0,
            busy_from: u32::MAX,
            broken_from: u32::MAX,
        }
    }

    fn call<T>(&mut self, done: T) -> Result<T, RigError> {
        self.calls += 1;
        match self.calls > self.broken_from {
            true => Err(RigError("the card fell off the bus".into())),
            false => Ok(done),
        }
    }
}

impl ClaimRig for Fake {
    fn card(&self) -> &Card {
        &self.card
    }

    fn budget(&self) -> u64 {
        1 << 30
    }

    fn calibrate(&mut self) -> Result<u64, RigError> {
        let busy = self.calls >= self.busy_from;
        self.call(if busy { 2_000_000 } else { 1_000_000 })
    }

    fn tidy(&mut self) {}
}

impl Allocations for Fake {
    fn malloc(&mut self, bytes: u64) -> Result<Malloc, RigError> {
        let ns = 46_000 + bytes / 2700;
        self.call(Malloc {
            alloc_ns: ns,
            free_ns: ns,
        })
    }
}

impl Copies for Fake {
    fn copy_async(&mut self, route: Route, bytes: u64) -> Result<Copied, RigError> {
        let pinned = matches!(route, Route::PinnedToDevice | Route::DeviceToPinned);
        let done_ns = 5_000 + bytes / if pinned { 55 } else { 11 };
        self.call(Copied {
            returned_ns: if pinned { 4_000 } else { done_ns - 1_000 },
            done_ns,
        })
    }
}

impl Accesses for Fake {
    fn strided(&mut self, log_words: u32, log_stride: u32) -> Result<u64, RigError> {
        let bytes = 4u64 << log_words;
        self.call(bytes * (1u64 << log_stride).min(8) / 3000)
    }
}
