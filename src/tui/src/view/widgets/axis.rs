//! The top of an axis of bytes.

/// Returns the smallest round figure that is not below `bytes`: 1, 1.5, 2, 3, 4, 6, 8, 12, ... of a unit.
pub(in crate::view) fn ceiling(bytes: u64) -> u64 {
    let power = bytes.max(1).checked_next_power_of_two().unwrap_or(u64::MAX);
    if power >= 4 && power / 4 * 3 >= bytes {
        power / 4 * 3
    } else {
        power
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_top_is_round_and_not_below_the_figure() {
        for (bytes, top) in [
            (0, 1),
            (1, 1),
            (3, 3),
            (5, 6),
            (7, 8),
            (9, 12),
            (13, 16),
            (48 << 30, 48 << 30),
            (49 << 30, 64 << 30),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(ceiling(bytes), top);
        }
    }
}
