//! Durations and ages. All functions take nanoseconds.

use super::{count, decimals};

#[cfg(test)]
#[path = "time_tests.rs"]
mod tests;

const SECOND: u64 = 1_000_000_000;

/// Formats a duration with at most two units: `340 ms`, `4.2 s`, `3 m 20 s`, `2 h 05 m`.
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

/// Formats how long something has lasted, more coarsely the longer it is: `42 s`, `3 min`, `2 h 05 min`.
pub fn age(nanos: u64) -> String {
    let seconds = nanos / SECOND;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        _ => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// Formats how long ago something was, to the minute, so that the text rarely changes: `just now`, `3 min ago`, `2 h
/// ago`.
pub fn ago(nanos: u64) -> String {
    match nanos / (60 * SECOND) {
        0 => "just now".into(),
        minutes @ 1..60 => format!("{minutes} min ago"),
        minutes => format!("{} h ago", minutes / 60),
    }
}

/// Formats how long ago something was for narrow columns: `now`, `3m`, `2h`.
pub fn ago_short(nanos: u64) -> String {
    match nanos / (60 * SECOND) {
        0 => "now".into(),
        minutes @ 1..60 => format!("{minutes}m"),
        minutes => format!("{}h", minutes / 60),
    }
}

/// Formats the exact length of a time axis: `90 s`, `2 min`, `2 min 05 s`.
pub fn span(nanos: u64) -> String {
    match nanos / SECOND {
        s @ 0..=90 => format!("{s} s"),
        s if s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{} min {:02} s", s / 60, s % 60),
    }
}

/// Formats a measured duration to a tenth of its unit: `0`, `1,543 ns`, `10.0 µs`, `9,999.9 ms`, `12,345.0 s`.
pub fn measured(nanos: u64) -> String {
    let value = nanos as f64;
    match nanos {
        0 => "0".to_owned(),
        1..10_000 => format!("{} ns", count(nanos)),
        10_000..1_000_000 => format!("{} µs", decimals(value / 1e3, 1)),
        1_000_000..10_000_000_000 => format!("{} ms", decimals(value / 1e6, 1)),
        _ => format!("{} s", decimals(value / 1e9, 1)),
    }
}

/// Formats the mean of many measurements in nanoseconds: `99.9 ns`, `1,058 ns`.
pub fn nanoseconds(mean: f64) -> String {
    if mean < 100.0 {
        format!("{} ns", decimals(mean, 1))
    } else {
        format!("{} ns", count(mean.round() as u64))
    }
}
