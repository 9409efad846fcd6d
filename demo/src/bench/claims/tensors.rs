//! Training steps as lists of tensors, which gpumem-alloc allocates: what lives when decides the peak.
//!
//! Bytes are the same on a GPU and on the simulated device. No kernel runs: what is claimed about computing is counted in evaluations
//! of layers.

use gpumem_alloc::device::Device;
use gpumem_alloc::{Allocator, Buffer, Config, Publish, Stream};
use gpumem_text::units::MIB;

use super::bench::{Bench, failed, figure};
use super::figure::Figure;
use crate::bench::error::Stop;

/// Device memory of a training step without a GPU, and at most.
const MOST: u64 = 1024 * MIB;

/// A tensor.
pub(super) type Tensor = Buffer<u8>;

/// A program that allocates tensors.
pub(super) struct Tensors {
    allocator: Allocator,
    /// Evaluations of layers so far, those forward count 1 each.
    pub(super) evaluations: u64,
}

impl Tensors {
    /// Returns a program without tensors, and a unit of bytes of which 64 fit into the budget.
    pub(super) fn new(bench: &Bench<'_>) -> Result<(Tensors, u64), Stop> {
        let budget = bench.gpu.as_ref().map_or(MOST, |gpu| gpu.budget()).min(MOST);
        let tensors = Tensors::on(bench.device, budget).map_err(failed)?;
        // Whole multiples of 2 MiB are not rounded.
        Ok((tensors, (budget / 64 / (2 * MIB)).max(1) * 2 * MIB))
    }

    fn on(device: &Device, budget: u64) -> Result<Tensors, gpumem_alloc::Error> {
        let config = Config {
            budget: Some(budget),
            publish: Publish::Off,
            ..Config::default()
        };
        Ok(Tensors {
            allocator: Allocator::new(device.clone(), config)?,
            evaluations: 0,
        })
    }

    /// Allocates a tensor.
    pub(super) fn tensor(&self, bytes: u64) -> Result<Tensor, Stop> {
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.allocator.alloc(len, Stream::DEFAULT).map_err(failed)
    }

    /// Allocates so many tensors of the same size.
    pub(super) fn several(&self, count: usize, bytes: u64) -> Result<Vec<Tensor>, Stop> {
        (0..count).map(|_| self.tensor(bytes)).collect()
    }

    /// Returns the bytes that the program holds.
    pub(super) fn held(&self) -> u64 {
        self.allocator.stats().all().allocated_bytes.current
    }

    /// Runs a part of the program, and returns the most bytes that it held meanwhile.
    pub(super) fn peak(&mut self, part: impl FnOnce(&mut Tensors) -> Result<(), Stop>) -> Result<u64, Stop> {
        self.allocator.reset_peaks();
        part(self)?;
        Ok(self.allocator.stats().all().allocated_bytes.peak)
    }
}

/// Returns bytes that were counted as a figure.
pub(super) fn counted(what: impl Into<String>, bytes: u64) -> Result<Figure, Stop> {
    figure(what, "MiB", &[bytes as f64 / MIB as f64])
}
