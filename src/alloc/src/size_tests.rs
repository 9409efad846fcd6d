#![allow(clippy::unwrap_used)]

use super::*;

fn sizes(mode: SegmentMode) -> Sizes {
    Sizes {
        mode,
        granularity: LARGE_ROUND,
        max_chunk: MAX_CHUNK,
    }
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
        let chunks: Vec<u64> = virt.chunks(mib * MIB, mib * MIB).collect();
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
fn sizes_that_overflow_are_errors() {
    let plain = sizes(SegmentMode::Plain);
    for requested in [MAX_REQUEST + 1, u64::MAX - 511, u64::MAX] {
        assert!(matches!(plain.round(requested), Err(Error::TooLarge { .. })));
    }
    assert!(matches!(
        bytes_of::<u64>(usize::MAX),
        Err(Error::TooLarge { requested: None })
    ));
    assert_eq!(bytes_of::<f32>(3).unwrap(), 12);
}

#[test]
fn sizes_read_well() {
    assert_eq!(human(511), "511 B");
    assert_eq!(human(1536), "1.5 KiB");
    assert_eq!(human(3 << 30), "3.0 GiB");
}
