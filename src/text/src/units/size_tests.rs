#![allow(clippy::unwrap_used)]
use super::*;

const M: u64 = 1 << 20;

#[test]
fn small_sizes_are_not_shown_as_zero() {
    assert_eq!(
        (gib(0).as_str(), gib(M).as_str(), gib(480 * M).as_str()),
        ("0.0", "<0.1", "0.5")
    );
}

#[test]
fn round_sizes_have_no_decimals() {
    for (bytes, text) in [
        (256 << 10, "256 KiB"),
        (2 * M, "2 MiB"),
        (3 * M / 2, "1.5 MiB"),
        (5 * M / 4, "1.25 MiB"),
        (512, "512 B"),
        (M + 1, "1.0 MiB"),
    ] {
        assert_eq!(round_size(bytes), text);
    }
}

#[test]
fn sufficient_sizes_are_rounded_up() {
    let cases = [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1025, "1.1 KiB"),
        (612_570, "598.3 KiB"),
        (1023 << 20, "1023.0 MiB"),
        (2 << 30, "2.0 GiB"),
        ((2 << 30) + 1, "2.1 GiB"),
        ((1 << 30) - 1, "1.0 GiB"),
        (u64::MAX, "16.0 EiB"),
    ];
    for (n, text) in cases {
        assert_eq!(bytes_at_least(n, u64::MAX), text);
    }
    // Rounding up to a tenth of a GiB would exceed the rest.
    let less = (10 << 30) - (50 << 20);
    assert_eq!(bytes_at_least(less, 25 << 20), "10190.0 MiB");
    assert_eq!(bytes_at_least(less + 1, 0), format!("{} B", less + 1));
    let less = (16 << 40) - (80 << 30);
    assert_eq!(bytes_at_least(less, 40 << 30), "16304.0 GiB");
}

#[test]
fn bytes_round_and_carry() {
    let cases = [
        (0, "0 B", "0"),
        (1023, "1023 B", "1023"),
        (1024, "1.0 KiB", "1.0K"),
        (1536, "1.5 KiB", "1.5K"),
        (102_348, "99.9 KiB", "99.9K"),
        (102_349, "100 KiB", "100K"),
        (1_048_063, "1023 KiB", "1023K"),
        (1_048_064, "1.0 MiB", "1.0M"),
        (5 * M / 2, "2.5 MiB", "2.5M"),
        (307 * M, "307 MiB", "307M"),
        (512 * M + (1 << 19), "512 MiB", "512M"),
        (1023 * M, "1023 MiB", "1023M"),
        (1024 * M - (1 << 19), "1.0 GiB", "1.0G"),
        (1302 << 20, "1.3 GiB", "1.3G"),
        ((1 << 30) - 1, "1.0 GiB", "1.0G"),
        (141 << 30, "141.0 GiB", "141.0G"),
        ((1023 << 30) + (900 << 20), "1023.9 GiB", "1023.9G"),
        (u64::MAX, "16.0 EiB", "16.0E"),
    ];
    for (n, long, short) in cases {
        assert_eq!((bytes(n).as_str(), bytes_short(n).as_str()), (long, short));
    }
}

#[test]
fn neighbouring_values_look_different() {
    let cases = [
        (5 * 1024 * M + 200 * M, 4 * 1024 * M, "5.2G"),
        (5 * 1024 * M + 200 * M, 128 * M, "5.2G"),
        (5 * 1024 * M + 200 * M, 100 * M, "5,320.0M"),
        (5 * 1024 * M, 30 << 10, "5,242,880.0K"),
        (1023 * M + 1008 * 1024, 1024 * M, "1.0G"),
        (25, 1, "25"),
        (4096, 1, "4,096"),
        (u64::MAX, u64::MAX, "16.0E"),
    ];
    for (n, step, text) in cases {
        assert_eq!(bytes_apart(n, step), text);
    }
    for step in [512, 40 << 10, 3 * M, 700 * M] {
        let texts: Vec<String> = (1..2000).map(|i| bytes_apart(i * step, step)).collect();
        assert!(texts.windows(2).all(|two| two[0] != two[1]), "{step}");
    }
}

#[test]
fn sizes_are_parsed_in_common_forms() {
    for (text, bytes) in [
        ("2GiB", 2 << 30),
        ("2g", 2 << 30),
        ("512 MiB", 512 << 20),
        ("512MB", 512 << 20),
        ("1.5G", 3 << 29),
        ("4096", 4096),
        ("10b", 10),
        ("0", 0),
    ] {
        assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
    }
    for bad in [
        "",
        "GiB",
        "2 parsecs",
        "-1G",
        "1e9",
        "99999999999T",
        "nan",
        "1..5G",
        "2ii",
    ] {
        assert!(parse_bytes(bad).is_err(), "{bad:?} was read as {:?}", parse_bytes(bad));
    }
}

#[test]
fn too_large_size_is_reported_as_such() {
    for large in ["99999999999T", "18446744073709551616", "99999999.5T"] {
        let error = parse_bytes(large).unwrap_err();
        assert!(error.contains("do not fit into 64 bits"), "{error}");
    }
}

#[test]
fn allocator_sizes_end_at_pib() {
    for n in [0, 1023, 1024, 1_048_524, 1_048_525, 500 * M, 1302 * M, 1 << 59] {
        assert_eq!(bytes_to_pib(n), bytes(n));
        assert_eq!(bytes_at_least_to_pib(n, u64::MAX), bytes_at_least(n, u64::MAX));
    }
    assert_eq!(bytes_to_pib(u64::MAX), "16384.0 PiB");
    assert_eq!(bytes_at_least_to_pib(u64::MAX, u64::MAX), "16384.0 PiB");
}

#[test]
fn rates_are_decimal() {
    for (n, text) in [
        (0, "0"),
        (999, "0"),
        (12_000, "12 kB/s"),
        (830_000_000, "830 MB/s"),
        (1_234_000_000, "1.2 GB/s"),
    ] {
        assert_eq!(rate(n), text);
    }
}
