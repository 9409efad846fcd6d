//! Names the steps of the curve.

use super::plan::{DEVICE_LEAST, FAR_RANGE, NEAR_MOST};
use super::report::{Point, Region};

/// A load takes at most this many times what the smallest working set takes if L1 still serves it.
const SAME_STEP: f64 = 1.25;

/// Returns the largest working set that L1 serves: up to there the curve is flat. `None` for an empty curve.
pub(super) fn l1_reach(curve: &[Point]) -> Option<u64> {
    let first = curve.first()?;
    let flat = curve.iter().take_while(|point| point.ns <= first.ns * SAME_STEP);
    flat.last().map(|point| point.bytes)
}

/// Returns the part of the curve that a working set is in. L1's end is measured; L2's parts are shares of its size.
pub(super) fn region(bytes: u64, l1_reach: u64, l2_bytes: u64) -> Region {
    let share = bytes as f64 / l2_bytes.max(1) as f64;
    let (far, far_most) = FAR_RANGE;
    if bytes <= l1_reach {
        Region::L1
    } else if bytes < l1_reach.saturating_mul(4) {
        Region::Between
    } else if share <= NEAR_MOST {
        Region::L2Near
    } else if (far..=far_most).contains(&share) {
        Region::L2Far
    } else if bytes >= l2_bytes.saturating_mul(DEVICE_LEAST) {
        Region::Device
    } else {
        Region::Between
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(bytes: u64, ns: f64) -> Point {
        Point {
            bytes,
            ns,
            cycles: ns,
            region: Region::Between,
        }
    }

    #[test]
    fn l1_reaches_as_far_as_the_curve_is_flat() {
        let curve = [
            point(1, 20.0),
            point(2, 20.5),
            point(3, 24.0),
            point(4, 60.0),
            point(5, 20.0),
        ];
        assert_eq!(l1_reach(&curve), Some(3));
        assert_eq!(l1_reach(&[]), None);
    }

    #[test]
    fn regions_of_an_h100() {
        let (kib, mb) = (1 << 10, 1_000_000);
        let of = |bytes| region(bytes, 208 * kib, 50 * mb);
        assert_eq!(of(16 * kib), Region::L1);
        assert_eq!(of(208 * kib), Region::L1);
        assert_eq!(of(256 * kib), Region::Between);
        assert_eq!(of(22 * mb), Region::L2Near);
        assert_eq!(of(30 * mb), Region::Between);
        assert_eq!(of(35 * mb), Region::L2Far);
        assert_eq!(of(42 * mb), Region::L2Far);
        assert_eq!(of(100 * mb), Region::Between);
        assert_eq!(of(200 * mb), Region::Device);
    }
}
