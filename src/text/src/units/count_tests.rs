use super::*;

#[test]
fn thousands_are_separated() {
    for (n, text) in [(7, "7"), (1024, "1,024"), (1_234_567, "1,234,567")] {
        assert_eq!(count(n), text);
    }
    assert_eq!([1, 2000].map(|n| plural(n, "block")), ["1 block", "2,000 blocks"]);
    assert_eq!([1, 2000].map(entries), ["1 entry", "2,000 entries"]);
    assert_eq!(
        [1.03, 27235.74].map(|ratio| decimals(ratio, 3)),
        ["1.030", "27,235.740"]
    );
}

#[test]
fn short_count_takes_at_most_four_columns() {
    for (n, text) in [
        (0, "0"),
        (9_999, "9999"),
        (12_446, "12k"),
        (999_999, "999k"),
        (17_999_999, "17M"),
        (u64::MAX, ">1G"),
    ] {
        assert_eq!(count_short(n), text);
    }
    for power in 0..20 {
        let n = 10u64.pow(power);
        assert!(count_short(n).len() <= 4 && count_short(n - 1).len() <= 4, "{n}");
    }
}
