//! A GPU for tests whose times are about those of an H100.

use super::fake_rig::FakeRig;
use crate::rig::claims::{
    Accesses, Allocations, Arrival, Arrived, ClaimRig, Copied, Copies, FreeBehind, Layout, Malloc, Managed, Op,
    Pipeline, Source, Toucher,
};
use crate::rig::{Card, Rig, RigError, Route};

/// The GPU.
pub(super) struct Fake {
    hierarchy: FakeRig,
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
            hierarchy: FakeRig::new(Card {
                name: "NVIDIA H100 80GB HBM3".into(),
                driver: "580.159.04".into(),
                // Small, as laying rings takes time without optimisation.
                l2_bytes: 1 << 20,
                ..Card::default()
            }),
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
        &self.hierarchy.card
    }

    fn budget(&self) -> u64 {
        1 << 30
    }

    fn hierarchy(&mut self) -> Result<&mut dyn Rig, RigError> {
        self.call(())?;
        Ok(&mut self.hierarchy)
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

    fn malloc_threads(&mut self, threads: u32, rounds: u32, _bytes: u64) -> Result<u64, RigError> {
        self.call(93_000 * u64::from(threads) * u64::from(rounds))
    }

    fn free_behind(&mut self, _bytes: u64, kernel_ns: u64) -> Result<FreeBehind, RigError> {
        self.call(FreeBehind {
            free_ns: kernel_ns - 10_000,
            kernel_ns,
        })
    }

    /// A kernel takes 3 µs to launch. `cuMemFree` waits for it.
    fn program(&mut self, source: Source, ops: &[Op]) -> Result<u64, RigError> {
        let (mut host, mut device) = (0, 0);
        for op in ops {
            match (op, source) {
                (Op::Kernel { ns, .. }, _) => {
                    host += 3_000;
                    device = host.max(device) + ns;
                }
                (Op::Alloc { .. }, Source::Driver) => host += 50_000,
                (Op::Free { .. }, Source::Driver) => host = host.max(device) + 50_000,
                (_, Source::Pool) => host += 700,
                (_, Source::Cache) => host += 50,
            }
        }
        self.call(host.max(device))
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

    fn compute(&mut self, bytes: u64, rounds: u32) -> Result<u64, RigError> {
        self.call(2_000 + bytes * u64::from(rounds) / 60_000)
    }

    /// The stages of chunks overlap as far as there are streams.
    fn pipeline(&mut self, pipeline: Pipeline) -> Result<u64, RigError> {
        let streams = if pipeline.pinned { pipeline.streams as u64 } else { 1 };
        let chunk = 2 * pipeline.chunk_bytes / 55 + pipeline.chunk_bytes * u64::from(pipeline.rounds) / 60_000;
        self.call(chunk * pipeline.chunks as u64 / streams)
    }
}

impl Accesses for Fake {
    fn strided(&mut self, log_words: u32, log_stride: u32) -> Result<u64, RigError> {
        let bytes = 4u64 << log_words;
        self.call(bytes * (1u64 << log_stride).min(8) / 3000)
    }

    fn fields(&mut self, layout: Layout, records: u32, used: u32) -> Result<u64, RigError> {
        let fields = match layout {
            Layout::ArrayOfStructures => 8,
            Layout::StructureOfArrays => used,
        };
        self.call(u64::from(records) * u64::from(fields) * 8 / 3000)
    }
}

impl Managed for Fake {
    fn arrive(&mut self, arrival: Arrival, bytes: u64) -> Result<Arrived, RigError> {
        let move_ns = match arrival {
            Arrival::OnDemand => 0,
            Arrival::Prefetched => bytes / 45,
            Arrival::CopiedPinned => bytes / 55,
            Arrival::CopiedPageable => bytes / 11,
        };
        let kernel_ns = if move_ns == 0 { bytes / 11 } else { bytes / 800 };
        self.call(Arrived { move_ns, kernel_ns })
    }

    fn touch(&mut self, by: Toucher, bytes: u64) -> Result<u64, RigError> {
        let each = match by {
            Toucher::Device => 40_000,
            Toucher::Host => 62_000,
        };
        self.call(each * (bytes >> 21))
    }
}
