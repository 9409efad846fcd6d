//! What it costs to empty the cache in each round of a loop.

use std::time::Instant;

use gpumem_alloc::device::Device;
use gpumem_alloc::{Allocator, Buffer, Config, Error, Publish, SegmentMode, Stream};
use gpumem_text::units::MIB;

use super::bench::{Bench, Found, MILLI, failed, figure};
use super::verdict::{Case, short, within};
use super::{Claim, Needs};
use crate::bench::error::Stop;

pub(super) const EMPTY_CACHE: Claim = Claim {
    name: "empty-cache",
    words: "torch.cuda.empty_cache() in a hot loop costs 5 to 20 ms a call.",
    source: "courses",
    method: "gpumem-alloc with plain segments, as PyTorch's default has them, gives its cache back and allocates the same \
             blocks again: both count, as the next round of a loop pays for the latter.",
    needs: Needs::Allocator,
    guess_ms: 500,
    measure,
};

/// How many segments the cache has, which share the budget.
const SEGMENTS: [u64; 2] = [16, 64];
/// Bytes of the cache without a GPU.
const SIMULATED: u64 = 1024 * MIB;
/// The claimed milliseconds.
const CLAIMED: (f64, f64) = (5.0, 20.0);

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let budget = bench.gpu.as_ref().map_or(SIMULATED, |gpu| gpu.budget());
    let mut figures = Vec::new();
    let mut cases = Vec::new();
    for segments in SEGMENTS {
        // Plain segments are whole multiples of 2 MiB.
        let bytes = budget / segments / (2 * MIB) * (2 * MIB);
        let config = Config {
            budget: Some(budget),
            segments: SegmentMode::Plain,
            publish: Publish::Off,
            ..Config::default()
        };
        let allocator = Allocator::new(bench.device.clone(), config).map_err(failed)?;
        drop(fill(&allocator, segments, bytes).map_err(failed)?);
        let rounds = bench.repeat_on_device(|device| round(device, &allocator, segments, bytes))?;
        let ms = |part: fn(&Round) -> u64| {
            rounds
                .iter()
                .map(|round| part(round) as f64 / MILLI)
                .collect::<Vec<f64>>()
        };
        figures.push(figure(
            format!("giving back {segments} segments"),
            "ms",
            &ms(|r| r.release_ns),
        )?);
        figures.push(figure(
            format!("allocating them again, {segments}"),
            "ms",
            &ms(|r| r.refill_ns),
        )?);
        let both = figure(
            format!("both, {segments} segments"),
            "ms",
            &ms(|r| r.release_ns + r.refill_ns),
        )?;
        cases.push(Case::new(format!("it has {segments} segments"), both.median));
        figures.push(both);
    }
    Ok(Found {
        short: short(&cases, "ms"),
        figures,
        verdict: within(&cases, CLAIMED, "ms"),
    })
}

/// A round's costs.
struct Round {
    release_ns: u64,
    refill_ns: u64,
}

fn round(device: &Device, allocator: &Allocator, segments: u64, bytes: u64) -> Result<Round, Error> {
    let release_ns = cost(device, || allocator.release_cached().map(drop))?;
    let mut blocks = Vec::new();
    let refill_ns = cost(device, || {
        blocks = fill(allocator, segments, bytes)?;
        Ok(())
    })?;
    Ok(Round { release_ns, refill_ns })
}

/// Allocates blocks that each have a segment of their own.
fn fill(allocator: &Allocator, segments: u64, bytes: u64) -> Result<Vec<Buffer<u8>>, Error> {
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    (0..segments).map(|_| allocator.alloc(len, Stream::DEFAULT)).collect()
}

/// Returns the nanoseconds that something took: by the host's clock, or what its driver calls take in the model of a simulated
/// device.
fn cost(device: &Device, run: impl FnOnce() -> Result<(), Error>) -> Result<u64, Error> {
    let (began, before) = (Instant::now(), device.calls_ns());
    run()?;
    Ok(match device.as_sim() {
        Some(_) => device.calls_ns() - before,
        None => u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bench::claims::Verdict;
    use gpumem_alloc::device::{SimConfig, sim};

    #[test]
    fn round_frees_and_allocates_every_segment() {
        let device = sim(SimConfig::default());
        let config = Config {
            segments: SegmentMode::Plain,
            publish: Publish::Off,
            ..Config::default()
        };
        let allocator = Allocator::new(device.clone(), config).unwrap();
        drop(fill(&allocator, 16, 64 * MIB).unwrap());
        let round = round(&device, &allocator, 16, 64 * MIB).unwrap();
        // The model: 46 µs a call, and 0.38 µs for each MiB.
        assert_eq!(round.refill_ns, 16 * (46_000 + 380 * 64));
        assert!(round.release_ns >= round.refill_ns);
    }

    #[test]
    fn many_segments_cost_milliseconds() {
        let cases = [
            Case::new("it has 16 segments", 2.2),
            Case::new("it has 64 segments", 6.6),
        ];
        let expected = Verdict::HoldsWhen("it has 64 segments".to_owned());
        assert_eq!(within(&cases, CLAIMED, "ms"), expected);
    }
}
