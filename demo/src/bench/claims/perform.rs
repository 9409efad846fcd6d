//! Checks claims, one after the other.

use gpumem_alloc::device::Device;

use super::bench::{Bench, Found, NEEDS_GPU};
use super::report::{Place, Row, Verdict};
use super::{Claim, Needs};
use crate::bench::error::{BenchError, Stop};
use crate::bench::hierarchy::Watch;
use crate::bench::protocol::Progress;
use crate::rig::claims::ClaimRig;

/// Reads of a calibration, of which the fastest counts, and those that first bring the clocks up: some hundred milliseconds of
/// load.
const CALIBRATIONS: u32 = 3;
const WARM_CALIBRATIONS: u32 = 200;
/// A calibration that changes by more than this fraction says that others use the card.
const MOST_CHANGE: f64 = 0.2;

/// Where claims are checked.
pub(super) struct Machine<'a> {
    /// `None` without a GPU.
    pub(super) gpu: Option<&'a mut dyn ClaimRig>,
    /// The same GPU, or a simulated device.
    pub(super) device: &'a Device,
}

/// Checks the claims in their order. A benchmark that fails is a row without a verdict, and the next one follows.
///
/// # Errors
/// When `watch` says to stop, or cannot say how far it is.
pub(super) fn check(chosen: &[&Claim], machine: Machine<'_>, watch: &mut dyn Watch) -> Result<Vec<Row>, Stop> {
    let Machine { mut gpu, device } = machine;
    let mut rows = Vec::new();
    for (at, claim) in chosen.iter().enumerate() {
        let left = chosen.iter().skip(at).map(|claim| claim.guess_ms);
        watch.progress(&Progress {
            done: at as u64,
            of: chosen.len() as u64,
            what: claim.name.to_owned(),
            left_ms: left.sum(),
        })?;
        let mut bench = Bench {
            gpu: gpu.as_mut().map(|gpu| &mut **gpu as &mut dyn ClaimRig),
            device,
            watch,
        };
        if at == 0 && bench.gpu.is_some() {
            // A card that fails here fails in each of the claims, too, whose rows say so.
            failed_to_reason(calibration(&mut bench, WARM_CALIBRATIONS))?.ok();
        }
        let found = failed_to_reason(one(claim, &mut bench))?;
        let place = if bench.gpu.is_some() && claim.needs != Needs::Simulation {
            Place::Gpu
        } else {
            Place::Simulated
        };
        rows.push(row(claim, place, found));
    }
    Ok(rows)
}

/// Checks one claim.
fn one(claim: &Claim, bench: &mut Bench<'_>) -> Result<Found, Stop> {
    match (&bench.gpu, claim.needs) {
        (Some(_), Needs::Gpu | Needs::Allocator) => {}
        (None, Needs::Gpu) => return Err(BenchError::Device(NEEDS_GPU.to_owned()).into()),
        // A simulated device has no other users.
        (None, Needs::Allocator) | (_, Needs::Simulation) => return (claim.measure)(bench),
    }
    let before = calibration(bench, CALIBRATIONS)?;
    let measured = (claim.measure)(bench);
    bench.gpu()?.tidy();
    let mut found = measured?;
    let after = calibration(bench, CALIBRATIONS)?;
    if let Some(reason) = busy(&found, before, after) {
        found.verdict = Verdict::NotMeasured(reason);
    }
    Ok(found)
}

/// Returns the least nanoseconds of so many calibrations, whose memory is free afterwards.
fn calibration(bench: &mut Bench<'_>, times: u32) -> Result<u64, Stop> {
    let mut least = u64::MAX;
    for _ in 0..times {
        least = least.min(bench.gpu()?.calibrate()?);
    }
    bench.gpu()?.tidy();
    Ok(least)
}

/// Returns how others kept the card busy, if they did.
fn busy(found: &Found, before_ns: u64, after_ns: u64) -> Option<String> {
    let change = after_ns as f64 / before_ns as f64 - 1.0;
    // Of 20 % more and of 20 % less.
    if change.abs() > MOST_CHANGE || change.is_nan() {
        return Some(format!("busy, a kernel's time changed by {:+.0}%", change * 100.0));
    }
    let unsteady = found.figures.iter().find(|figure| !figure.is_steady())?;
    Some(format!("busy, {} varies", unsteady.what))
}

/// Turns a failed benchmark into the reason why its claim was not measured. What ends the run stays an error.
fn failed_to_reason<T>(done: Result<T, Stop>) -> Result<Result<T, String>, Stop> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(Stop::Error(BenchError::Device(reason))) => Ok(Err(reason)),
        Err(stop) => Err(stop),
    }
}

fn row(claim: &Claim, place: Place, found: Result<Found, String>) -> Row {
    let found = found.unwrap_or_else(|reason| Found {
        short: String::new(),
        figures: Vec::new(),
        verdict: Verdict::NotMeasured(reason),
    });
    Row {
        name: claim.name.to_owned(),
        claim: claim.words.to_owned(),
        source: claim.source.to_owned(),
        method: claim.method.to_owned(),
        place,
        short: found.short,
        figures: found.figures,
        verdict: found.verdict,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bench::claims::figure::Figure;

    fn found(samples: &[f64]) -> Found {
        Found {
            short: String::new(),
            figures: vec![Figure::of("copy", "ms", samples).unwrap()],
            verdict: Verdict::Holds,
        }
    }

    #[test]
    fn changed_calibration_says_that_the_card_is_busy() {
        let steady = found(&[1.0, 1.0, 1.0]);
        assert_eq!(busy(&steady, 100, 119), None);
        assert_eq!(busy(&steady, 119, 100), None);
        let reason = busy(&steady, 100, 125).unwrap();
        assert_eq!(reason, "busy, a kernel's time changed by +25%");
        assert!(busy(&steady, 125, 90).is_some());
        assert!(busy(&steady, 0, 0).is_some());
    }

    #[test]
    fn unsteady_figure_says_that_the_card_is_busy() {
        let reason = busy(&found(&[1.0, 1.0, 2.0, 4.0, 4.0]), 100, 100).unwrap();
        assert_eq!(reason, "busy, copy varies");
    }
}
