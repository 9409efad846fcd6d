//! What a claim's benchmark works with.

use gpumem_alloc::device::Device;

use super::figure::Figure;
use super::report::Verdict;
use crate::bench::error::{BenchError, Stop};
use crate::bench::hierarchy::Watch;
use crate::rig::RigError;
use crate::rig::claims::ClaimRig;

/// How often everything is measured.
const SAMPLES: usize = 7;

/// A machine, and whom to ask whether to go on.
pub(super) struct Bench<'a> {
    /// `None` without a GPU.
    pub(super) gpu: Option<&'a mut dyn ClaimRig>,
    /// Where gpumem-alloc takes memory: the same GPU, or the simulated device.
    pub(super) device: &'a Device,
    pub(super) watch: &'a dyn Watch,
}

/// What a benchmark found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    /// The figure in a few words.
    pub(super) short: String,
    pub(super) figures: Vec<Figure>,
    pub(super) verdict: Verdict,
}

impl Bench<'_> {
    /// Returns the GPU.
    ///
    /// # Errors
    /// When there is none, or the run has to end.
    pub(super) fn gpu(&mut self) -> Result<&mut dyn ClaimRig, Stop> {
        self.watch.go_on()?;
        match &mut self.gpu {
            Some(gpu) => Ok(&mut **gpu),
            None => Err(BenchError::Device(NEEDS_GPU.to_owned()).into()),
        }
    }

    /// Measures [`SAMPLES`] times, after a first time that only warms.
    pub(super) fn repeat<T>(
        &mut self,
        mut run: impl FnMut(&mut dyn ClaimRig) -> Result<T, RigError>,
    ) -> Result<Vec<T>, Stop> {
        let mut samples = Vec::new();
        for sample in 0..=SAMPLES {
            let taken = run(self.gpu()?)?;
            if sample > 0 {
                samples.push(taken);
            }
        }
        Ok(samples)
    }

    /// The same for what gpumem-alloc does on the device, with or without a GPU.
    pub(super) fn repeat_on_device<T>(
        &mut self,
        mut run: impl FnMut(&Device) -> Result<T, gpumem_alloc::Error>,
    ) -> Result<Vec<T>, Stop> {
        let mut samples = Vec::new();
        for sample in 0..=SAMPLES {
            self.watch.go_on()?;
            let taken = run(self.device).map_err(failed)?;
            if sample > 0 {
                samples.push(taken);
            }
        }
        Ok(samples)
    }
}

/// Makes an error of the allocator the reason why a claim was not measured.
pub(super) fn failed(error: gpumem_alloc::Error) -> Stop {
    BenchError::Device(error.to_string()).into()
}

/// Why a claim was not measured that needs a GPU.
pub(super) const NEEDS_GPU: &str = "needs a GPU";

/// Summarises samples.
///
/// # Errors
/// When some are not numbers, as ratios of no time are.
pub(super) fn figure(what: impl Into<String>, unit: &str, samples: &[f64]) -> Result<Figure, Stop> {
    let figure = Figure::of(what, unit, samples);
    figure.ok_or_else(|| BenchError::Device("the clock stands still".to_owned()).into())
}

/// Nanoseconds of a microsecond and of a millisecond.
pub(super) const MICRO: f64 = 1e3;
pub(super) const MILLI: f64 = 1e6;
