//! Bytes, times and shares as text, the same everywhere.

const NAMES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Bytes with one decimal and a binary unit: `18.0 GiB`, `512.0 MiB`, `25 B`.
pub fn bytes(n: u64) -> String {
    let (value, unit) = scale(n);
    if unit == 0 {
        format!("{n} B")
    } else {
        format!("{value:.1} {}", NAMES[unit])
    }
}

/// The same for narrow columns: `18.0G`, `512.0M`, `25`.
pub fn bytes_short(n: u64) -> String {
    let (value, unit) = scale(n);
    if unit == 0 {
        format!("{n}")
    } else {
        format!("{value:.1}{}", &NAMES[unit][..1])
    }
}

/// Value and index of its unit. A value that would round to 1024.0 moves up a unit.
fn scale(n: u64) -> (f64, usize) {
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < NAMES.len() {
        value /= 1024.0;
        unit += 1;
    }
    (value, unit)
}

/// A share of 0..=1 as percent without decimals: `43%`.
pub fn percent(share: f64) -> String {
    format!("{:.0}%", (share * 100.0).clamp(0.0, 100.0))
}

/// A duration in nanoseconds, to two significant units at most: `340 ms`, `4.2 s`, `3 m 20 s`, `2 h 05 m`.
pub fn duration(nanos: u64) -> String {
    let millis = nanos / 1_000_000;
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis} ms"),
        1..60 => format!("{}.{} s", seconds, millis % 1000 / 100),
        60..3600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_to_one_decimal_and_carry() {
        let cases = [
            (0, "0 B", "0"),
            (1023, "1023 B", "1023"),
            (1024, "1.0 KiB", "1.0K"),
            (1024 * 1024 - 1, "1.0 MiB", "1.0M"),
            (512 << 20, "512.0 MiB", "512.0M"),
            (u64::MAX, "16.0 EiB", "16.0E"),
        ];
        for (n, long, short) in cases {
            assert_eq!((bytes(n).as_str(), bytes_short(n).as_str()), (long, short));
        }
    }

    #[test]
    fn durations_keep_two_units() {
        let cases = [
            (340_000_000, "340 ms"),
            (4_290_000_000, "4.2 s"),
            (200_000_000_000, "3 m 20 s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(duration(nanos), text);
        }
        assert_eq!(duration(7_500_000_000_000), "2 h 05 m");
    }
}
