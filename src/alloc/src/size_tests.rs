#![allow(clippy::unwrap_used)]

use super::*;

fn sizes(mode: SegmentMode) -> Sizes {
    let config = Config {
        segments: mode,
        ..Config::default()
    };
    Sizes::new(&config, LARGE_ROUND)
}

#[test]
fn requests_round_as_in_pytorch() {
    let plain = sizes(SegmentMode::Plain);
    let cases = [
        (1, 512, Class::Small),
        (512, 512, Class::Small),
        (513, 1024, Class::Small),
        (MIB, MIB, Class::Small),
        (MIB + 1, MIB + 512, Class::Large),
        (2 * MIB, 2 * MIB, Class::Large),
        (10 * MIB + 1, 10 * MIB + 512, Class::Large),
    ];
    for (requested, size, class) in cases {
        assert_eq!(plain.round(requested).unwrap(), (size, class), "{requested} bytes");
    }
}

#[test]
fn virtual_segments_round_to_whole_granules() {
    let virt = sizes(SegmentMode::Virtual);
    let cases = [
        (MIB, MIB, Class::Small),
        (MIB + 1, MIB + 512, Class::Large),
        (2 * MIB - 512, 2 * MIB - 512, Class::Large),
        (2 * MIB - 511, 2 * MIB, Class::Chunked),
        (2 * MIB + 1, 4 * MIB, Class::Chunked),
        (75 * MIB, 76 * MIB, Class::Chunked),
    ];
    for (requested, size, class) in cases {
        assert_eq!(virt.round(requested).unwrap(), (size, class), "{requested} bytes");
    }
}

/// `max_split_size` as in PyTorch's manual: larger blocks are neither split nor given to smaller requests.
#[test]
fn blocks_above_the_limit_are_whole_and_for_large_requests_only() {
    let config = Config {
        max_split_size: Some(29 * MIB + 1),
        ..Config::default()
    };
    let sizes = Sizes::new(&config, LARGE_ROUND);
    // The limit is 30 MiB: whole segments.
    let takes = [
        (MIB, 30 * MIB, true),
        (MIB, 32 * MIB, false),
        (30 * MIB, 30 * MIB, true),
        (30 * MIB, 32 * MIB, false),
        (31 * MIB, 32 * MIB, true),
        (31 * MIB, 51 * MIB - 512, true),
        (31 * MIB, 51 * MIB, false),
    ];
    for (size, block, expected) in takes {
        assert_eq!(sizes.takes(size, block), expected, "{size} from {block}");
    }
    assert!(sizes.splits(Class::Large, 30 * MIB, 2 * MIB) && !sizes.splits(Class::Large, 30 * MIB + 512, 2 * MIB));
    assert!(sizes.splits(Class::Small, 512, 512));
    let without = self::sizes(SegmentMode::Plain);
    assert!(without.takes(512, MAX_REQUEST) && without.splits(Class::Large, MAX_REQUEST, 2 * MIB));
}

/// The short way knows nothing of divisions, so nothing may go it.
#[test]
fn requests_that_are_rounded_further_take_the_long_way() {
    let config = Config {
        roundup_power2_divisions: crate::rounding::Divisions::all(8).unwrap(),
        ..Config::default()
    };
    let sizes = Sizes::new(&config, LARGE_ROUND);
    assert_eq!(sizes.round_quick(1), None);
    assert_eq!(sizes.round(65 * MIB).unwrap(), (72 * MIB, Class::Large));
    let plain = self::sizes(SegmentMode::Plain);
    assert_eq!(
        plain.round_quick(MAX_REQUEST).unwrap(),
        plain.round(MAX_REQUEST).unwrap()
    );
    assert_eq!(plain.round_quick(MAX_REQUEST + 1), None);
    assert_eq!(plain.round_quick(0), None);
}

#[test]
fn growth_is_two_twenty_or_rounded() {
    let plain = sizes(SegmentMode::Plain);
    let cases = [
        (Class::Small, 512, (2 * MIB, 2 * MIB)),
        (Class::Large, MIB + 512, (20 * MIB, 2 * MIB)),
        (Class::Large, 10 * MIB - 512, (20 * MIB, 10 * MIB)),
        (Class::Large, 10 * MIB, (10 * MIB, 10 * MIB)),
        (Class::Large, 10 * MIB + 512, (12 * MIB, 12 * MIB)),
        (Class::Chunked, 2 * MIB, (20 * MIB, 2 * MIB)),
        (Class::Chunked, 100 * MIB, (100 * MIB, 100 * MIB)),
    ];
    for (class, size, expected) in cases {
        assert_eq!(plain.growth(class, size), expected, "{class:?} {size}");
    }
}

#[test]
fn chunks_sum_to_what_was_asked() {
    let virt = sizes(SegmentMode::Virtual);
    for mib in (2..2000).step_by(2) {
        let chunks: Vec<u64> = virt.chunks(mib * MIB, virt.chunk(mib * MIB)).collect();
        assert_eq!(chunks.iter().sum::<u64>(), mib * MIB);
        assert!(
            chunks
                .iter()
                .all(|c| c.is_power_of_two() && *c >= LARGE_ROUND && *c <= MAX_CHUNK)
        );
        assert!(
            chunks.windows(2).all(|pair| pair[0] >= pair[1]),
            "largest first: {chunks:?}"
        );
        assert!(
            chunks.len() <= 70.max((mib * MIB / MAX_CHUNK) as usize + 5),
            "{mib} MiB in {} chunks",
            chunks.len()
        );
    }
}

#[test]
fn chunks_of_stitched_memory_are_even() {
    let stitched = sizes(SegmentMode::Stitched);
    for mib in (2..2000).step_by(2) {
        for chunk in [2, 8, 64] {
            let chunks: Vec<u64> = stitched.stitched_chunks(mib * MIB, chunk * MIB).collect();
            assert_eq!(chunks.iter().sum::<u64>(), mib * MIB);
            let (least, most) = (*chunks.iter().min().unwrap(), *chunks.iter().max().unwrap());
            assert!(least >= LARGE_ROUND && most <= least + LARGE_ROUND && most <= MAX_CHUNK);
            assert!(
                most <= (chunk * MIB * 3 / 2 + LARGE_ROUND).max(3 * LARGE_ROUND),
                "{mib} MiB in chunks of {chunk}: {chunks:?}"
            );
        }
    }
    assert_eq!(stitched.stitched_chunks(0, 2 * MIB).count(), 0);
}

#[test]
fn chunks_of_stitched_memory_grow_with_the_request_and_with_all_and_may_be_finer() {
    let stitched = sizes(SegmentMode::Stitched);
    let chunk = |bytes, reserved| {
        [1, 2, 4, FREELY].map(|fineness| stitched.stitched_chunk(bytes * MIB, reserved * MIB, fineness) / MIB)
    };
    assert_eq!(chunk(2, 0), [4, 2, 2, 2], "the first ones");
    assert_eq!(chunk(2, 1024), [32, 16, 8, 2], "of all");
    assert_eq!(chunk(512, 0), [32, 16, 16, 8], "of one request");
    assert_eq!(chunk(1 << 20, 1 << 20), [64, 64, 64, 64], "no more than the largest");
}

#[test]
fn sizes_that_overflow_are_errors() {
    let plain = sizes(SegmentMode::Plain);
    for requested in [MAX_REQUEST + 1, u64::MAX - 511, u64::MAX] {
        assert!(matches!(plain.round(requested), Err(Error::TooLarge { .. })));
    }
    let just = plain.round(MAX_REQUEST + 1).unwrap_err().to_string();
    assert!(
        just.contains("140737488355329 bytes") && just.contains("128.0 TiB"),
        "{just}"
    );
    assert!(matches!(
        bytes_of::<u64>(usize::MAX),
        Err(Error::TooLarge { requested: None })
    ));
    assert_eq!(bytes_of::<f32>(3).unwrap(), 12);
}
