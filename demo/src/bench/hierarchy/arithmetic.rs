//! From raw clocks to figures.

use crate::rig::{Clocks, Moved};

/// Returns the median; of an even number of values the lower one of the two in the middle. `None` for no values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// Returns the smallest and the largest value. `None` for no values.
pub(crate) fn range(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    Some((least, most))
}

/// Returns the cycles and nanoseconds of one hop. `None` if a clock stood still, or there were no hops.
pub(crate) fn per_hop(clocks: Clocks, hops: u32) -> Option<(f64, f64)> {
    let sound = clocks.cycles > 0 && clocks.ns > 0 && hops > 0;
    sound.then(|| {
        let hops = f64::from(hops);
        (clocks.cycles as f64 / hops, clocks.ns as f64 / hops)
    })
}

/// Returns the clock in MHz. `None` if a clock stood still.
pub(crate) fn mhz(clocks: Clocks) -> Option<f64> {
    per_hop(clocks, 1).map(|(cycles, ns)| cycles / ns * 1e3)
}

/// Returns the bandwidth in GB/s, which is bytes per nanosecond. `None` if no time passed.
pub(crate) fn gb_per_s(moved: Moved) -> Option<f64> {
    (moved.ns > 0).then(|| moved.bytes as f64 / moved.ns as f64)
}

/// Returns a fraction of a size, in whole multiples of `unit` and at least one.
pub(crate) fn fraction(bytes: u64, fraction: f64, unit: u64) -> u64 {
    let units = (bytes as f64 * fraction / unit as f64) as u64;
    units.max(1) * unit
}

/// Estimates the time left in milliseconds: guesses of what is done and what is to do, corrected by how long the former took.
pub(crate) fn time_left(done_ms: u64, left_ms: u64, elapsed_ms: u64) -> u64 {
    // Until a second was guessed and passed, the guess says more than the ratio.
    if done_ms < 1000 || elapsed_ms < 1000 {
        return left_ms;
    }
    let scaled = u128::from(left_ms) * u128::from(elapsed_ms) / u128::from(done_ms);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_range_of_samples() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
        assert_eq!(range(&[3.0, 1.0, 2.0]), Some((1.0, 3.0)));
        assert_eq!(range(&[]), None);
    }

    #[test]
    fn hop_takes_its_share_of_the_clocks() {
        let clocks = Clocks { cycles: 3400, ns: 1717 };
        assert_eq!(per_hop(clocks, 100), Some((34.0, 17.17)));
        assert_eq!(mhz(clocks).map(f64::round), Some(1980.0));
        for stopped in [Clocks { cycles: 0, ns: 5 }, Clocks { cycles: 5, ns: 0 }] {
            assert_eq!(per_hop(stopped, 100), None);
            assert_eq!(mhz(stopped), None);
        }
        assert_eq!(per_hop(clocks, 0), None);
    }

    #[test]
    fn bandwidth_is_bytes_per_nanosecond() {
        let moved = |ns| Moved {
            bytes: 3_000_000,
            ns,
            clocks: None,
        };
        assert_eq!(gb_per_s(moved(1000)), Some(3000.0));
        assert_eq!(gb_per_s(moved(0)), None);
    }

    #[test]
    fn fraction_is_in_whole_units() {
        assert_eq!(fraction(1000, 0.5, 128), 384);
        assert_eq!(fraction(1000, 0.0, 128), 128);
        assert_eq!(fraction(0, 0.5, 128), 128);
    }

    #[test]
    fn time_left_follows_the_time_taken() {
        assert_eq!(time_left(0, 8000, 0), 8000);
        assert_eq!(time_left(2000, 6000, 4000), 12_000);
        assert_eq!(time_left(2000, 0, 4000), 0);
        assert_eq!(time_left(1000, u64::MAX, u64::MAX), u64::MAX);
    }
}
