#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

/// As PyTorch's manual tells it: the parts between the power of two below and the one above, one after the other.
fn naive(size: u64, parts: u64) -> u64 {
    if parts < 2 || size < 512 * parts {
        return size.div_ceil(512) * 512;
    }
    let below = (0..63).map(|n| 1u64 << n).rfind(|power| *power <= size).unwrap();
    (0..=parts)
        .map(|part| below + below / parts * part)
        .find(|edge| *edge >= size)
        .unwrap()
}

#[test]
fn sizes_round_as_in_pytorchs_manual() {
    let four = Divisions::all(4).unwrap();
    let cases = [
        (1200, 1280),
        (1024, 1024),
        (1025, 1280),
        (1281, 1536),
        (2047, 2048),
        (84, 96),
    ];
    for (size, rounded) in cases {
        assert_eq!(four.round(size * MIB), rounded * MIB, "{size} MiB");
    }
    assert_eq!(four.round(1), 512);
    assert_eq!(four.round(2049), 2560, "a part is never less than 512 B");
    assert_eq!(Divisions::default().round(84 * MIB + 1), 84 * MIB + 512);
}

#[test]
fn ranges_have_parts_of_their_own() {
    let mixed = Divisions::default().with(64, 8).unwrap().with(128, 2).unwrap();
    assert_eq!(mixed.round(65 * MIB), 72 * MIB);
    assert_eq!(mixed.round(129 * MIB), 192 * MIB);
    assert_eq!(mixed.round(257 * MIB), 257 * MIB);
    let rest = mixed.with_above(128, 16).unwrap().with_below(64, 1).unwrap();
    let sizes = [63, 65, 129, 257].map(|mib| rest.round(mib * MIB) / MIB);
    assert_eq!(sizes, [63, 72, 192, 272]);
    assert!(Divisions::all(3).is_none() && Divisions::all(0).is_none() && mixed.with(3, 2).is_none());
    assert!(mixed.with(1 << 40, 8).unwrap().round((33 << 30) + 1) == 36 << 30);
}

proptest! {
    #[test]
    fn rounding_is_what_counting_the_parts_gives(log in 0u32..46, low in any::<u64>(), parts in 0u32..64) {
        let size = (1u64 << log) | (low & ((1 << log) - 1));
        let parts = 1u64 << parts;
        let rounded = Divisions::all(parts).unwrap().round(size);
        prop_assert!(rounded >= size && rounded.is_multiple_of(512));
        if parts <= 4096 {
            prop_assert_eq!(rounded, naive(size, parts));
        }
        prop_assert_eq!(Divisions::all(parts).unwrap().round(rounded), rounded, "what is rounded stays");
    }
}
