//! Coalesced against strided access.

use super::bench::{Bench, Found, MICRO, figure};
use super::figure::range;
use super::report::Verdict;
use super::{Claim, Needs};
use crate::bench::error::Stop;

pub(super) const COALESCING: Claim = Claim {
    name: "coalescing",
    words: "Strided access is 2 to 32 times slower than coalesced access.",
    source: "courses",
    method: "A kernel reads the same words of device memory, each once, with a stride of 1 to 32 words from thread to \
             thread; its time by events, over that at stride 1.",
    needs: Needs::Gpu,
    guess_ms: 500,
    measure,
};

/// Strides as powers of two.
const LOG_STRIDES: [u32; 6] = [0, 1, 2, 3, 4, 5];
/// Bytes to read as a power of two: far more than an L2 cache.
const MOST_LOG_BYTES: u32 = 29;
/// The claimed slowdown. A stride of 2 moves twice the memory, of which launching the kernel hides a little.
const CLAIMED: (f64, f64) = (1.8, 32.0);

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    // A power of two within the budget.
    let log_bytes = bench.gpu()?.budget().max(4).ilog2().min(MOST_LOG_BYTES);
    let mut figures = Vec::new();
    for log_stride in LOG_STRIDES {
        let ns = bench.repeat(|gpu| gpu.strided(log_bytes - 2, log_stride))?;
        let samples: Vec<f64> = ns.iter().map(|ns| *ns as f64 / MICRO).collect();
        figures.push(figure(format!("stride {}", 1 << log_stride), "µs", &samples)?);
    }
    let times: Vec<f64> = figures.iter().map(|figure| figure.median).collect();
    let slower = slowdowns(&times);
    Ok(Found {
        short: slower
            .last()
            .map_or_else(String::new, |(_, most)| range(*most, *most, "x")),
        figures,
        verdict: verdict(&slower),
    })
}

/// Returns stride and slowdown of each stride above 1, from the times of [`LOG_STRIDES`].
fn slowdowns(times: &[f64]) -> Vec<(u32, f64)> {
    let first = times.first().copied().unwrap_or(f64::NAN);
    let strides = LOG_STRIDES.iter().map(|log| 1 << log);
    strides.zip(times.iter().map(|time| time / first)).skip(1).collect()
}

/// Judges the slowdowns by stride: it holds from the smallest stride on from which all are in the claimed range.
fn verdict(slower: &[(u32, f64)]) -> Verdict {
    let inside = |(_, times): &&(u32, f64)| (CLAIMED.0..=CLAIMED.1).contains(times);
    let holding = slower.iter().rev().take_while(inside).last();
    let most = slower.last().map_or(f64::NAN, |(_, times)| *times);
    match holding {
        Some((2, _)) => Verdict::Holds,
        Some((stride, _)) => Verdict::HoldsWhen(format!("the stride is {stride} words or more")),
        None => Verdict::DoesNotHold(format!("{} at stride 32", range(most, most, "x"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(times: [f64; 6]) -> Verdict {
        verdict(&slowdowns(&times))
    }

    #[test]
    fn slowdown_decides_from_which_stride_it_holds() {
        assert_eq!(judge([100.0, 195.0, 390.0, 780.0, 800.0, 820.0]), Verdict::Holds);
        assert_eq!(
            judge([100.0, 110.0, 190.0, 300.0, 300.0, 300.0]),
            Verdict::HoldsWhen("the stride is 4 words or more".to_owned())
        );
        assert_eq!(
            judge([100.0, 100.0, 100.0, 100.0, 100.0, 120.0]),
            Verdict::DoesNotHold("1.2x at stride 32".to_owned())
        );
        assert!(matches!(
            judge([10.0, 20.0, 40.0, 80.0, 300.0, 900.0]),
            Verdict::DoesNotHold(_)
        ));
    }

    #[test]
    fn no_time_is_no_slowdown() {
        assert!(slowdowns(&[]).is_empty());
        assert!(matches!(verdict(&slowdowns(&[0.0; 6])), Verdict::DoesNotHold(_)));
    }
}
