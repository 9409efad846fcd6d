use super::*;

#[test]
fn durations_keep_two_units() {
    let cases = [
        (340_000_000, "340 ms"),
        (4_290_000_000, "4.2 s"),
        (200_000_000_000, "3 m 20 s"),
        (7_500_000_000_000, "2 h 05 m"),
    ];
    for (nanos, text) in cases {
        assert_eq!(duration(nanos), text);
    }
}

#[test]
fn ages_move_by_the_minute() {
    let cases = [
        (0, "just now", "now"),
        (59, "just now", "now"),
        (61, "1 min ago", "1m"),
        (3599, "59 min ago", "59m"),
        (7500, "2 h ago", "2h"),
    ];
    for (seconds, text, short) in cases {
        let nanos = seconds * SECOND;
        assert_eq!((ago(nanos).as_str(), ago_short(nanos).as_str()), (text, short));
    }
    assert_eq!(
        [42, 199, 7500].map(|s| age(s * SECOND)),
        ["42 s", "3 min", "2 h 05 min"]
    );
}

#[test]
fn spans_are_exact() {
    let spans = [60, 90, 91, 120, 125].map(|s| span(s * SECOND));
    assert_eq!(spans, ["60 s", "90 s", "1 min 31 s", "2 min", "2 min 05 s"]);
}

#[test]
fn measured_durations_separate_thousands() {
    let measured = [0, 9, 1543, 10_000, 999_990, 9_999_940_000, 12_345_000_000_000].map(measured);
    let expected = [
        "0",
        "9 ns",
        "1,543 ns",
        "10.0 µs",
        "1,000.0 µs",
        "9,999.9 ms",
        "12,345.0 s",
    ];
    assert_eq!(measured, expected);
    assert_eq!(
        [0.04, 99.94, 1057.8].map(nanoseconds),
        ["0.0 ns", "99.9 ns", "1,058 ns"]
    );
}
