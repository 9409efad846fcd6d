//! The bandwidth of device memory against that of the bus.

use gpumem_text::units::MIB;

use super::bench::{Bench, Found, figure};
use super::figure::range;
use super::report::Verdict;
use super::{Claim, Needs};
use crate::bench::error::{BenchError, Stop};
use crate::rig::{Moved, Route, Stream};

pub(super) const HBM_PCIE: Claim = Claim {
    name: "hbm-pcie",
    words: "Device memory delivers 2 to 3 TB/s, 26 times as much as PCIe.",
    source: "courses",
    method: "A kernel reads far more device memory than the L2 cache holds, and the driver copies 64 MiB from pinned memory; \
             bytes by the time between two events. 20 to 32 times are about 26.",
    needs: Needs::Gpu,
    guess_ms: 600,
    measure,
};

const COPY: u64 = 64 * MIB;
/// The memory that is read, in sizes of the L2 cache.
const L2_SIZES: u64 = 8;
/// The claimed TB/s, and the claimed times of a copy over the bus.
const TB_PER_S: (f64, f64) = (2.0, 3.0);
const TIMES: (f64, f64) = (20.0, 32.0);

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let gpu = bench.gpu()?;
    let bytes = gpu.card().l2_bytes.saturating_mul(L2_SIZES).min(gpu.budget() / 2) & !0xff;
    if bytes < 2 * gpu.card().l2_bytes {
        return Err(BenchError::Device("the budget is too small (--budget)".to_owned()).into());
    }
    let reads = bench.repeat(|gpu| gpu.hierarchy()?.stream(Stream::Read { bytes, rounds: 1 }))?;
    let copies = bench.repeat(|gpu| gpu.hierarchy()?.copy(Route::PinnedToDevice, COPY))?;
    let gb_per_s = |moved: &[Moved]| -> Vec<f64> { moved.iter().map(|m| m.bytes as f64 / m.ns as f64).collect() };
    let read = figure("reading device memory", "GB/s", &gb_per_s(&reads))?;
    let copy = figure("copying from pinned memory", "GB/s", &gb_per_s(&copies))?;
    let (rate, times) = (read.median / 1e3, read.median / copy.median);
    Ok(Found {
        short: format!("{}, {}", range(rate, rate, "TB/s"), range(times, times, "x")),
        figures: vec![read, copy],
        verdict: verdict(rate, times),
    })
}

/// Judges the TB/s of device memory, and how many times that of the bus it is.
fn verdict(rate: f64, times: f64) -> Verdict {
    let (fast, far) = (
        (TB_PER_S.0..=TB_PER_S.1).contains(&rate),
        (TIMES.0..=TIMES.1).contains(&times),
    );
    match (fast, far) {
        (true, true) => Verdict::Holds,
        (true, false) => Verdict::DoesNotHold(format!("{} as much", range(times, times, "x"))),
        (false, true) => Verdict::DoesNotHold(range(rate, rate, "TB/s")),
        (false, false) => Verdict::DoesNotHold(format!(
            "{}, {} as much",
            range(rate, rate, "TB/s"),
            range(times, times, "x")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_of_the_claim_have_to_hold() {
        assert_eq!(verdict(2.5, 26.0), Verdict::Holds);
        assert_eq!(verdict(2.9, 53.0), Verdict::DoesNotHold("53x as much".to_owned()));
        assert_eq!(verdict(1.5, 27.0), Verdict::DoesNotHold("1.5 TB/s".to_owned()));
        assert_eq!(
            verdict(4.2, 76.0),
            Verdict::DoesNotHold("4.2 TB/s, 76x as much".to_owned())
        );
    }
}
