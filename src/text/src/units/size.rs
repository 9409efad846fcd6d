//! Sizes in bytes: binary units for memory, decimal ones for links.

use super::count;

#[cfg(test)]
#[path = "size_tests.rs"]
mod tests;

/// One MiB.
pub const MIB: u64 = 1 << 20;

/// The binary units; each is 1,024 times the previous one.
const NAMES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const GIB: usize = 3;
const PIB: usize = 5;
const EIB: usize = 6;

/// Formats bytes with a binary unit: `18.0 GiB`, `2.5 MiB`, `512 MiB`, `25 B`. Below 1 GiB three digits are enough; from there on
/// a tenth is as much as 100 MiB, and is always shown.
pub fn bytes(n: u64) -> String {
    bytes_to(EIB, n)
}

/// Formats bytes like [`bytes`], with PiB as the largest unit: `16384.0 PiB`. The allocator and the demos use this for
/// the sizes in their errors.
pub fn bytes_to_pib(n: u64) -> String {
    bytes_to(PIB, n)
}

fn bytes_to(largest: usize, n: u64) -> String {
    match unit(n, largest) {
        0 => format!("{n} B"),
        unit => format!("{} {}", figure(n, unit), NAMES[unit]),
    }
}

/// Formats a number of bytes in a unit.
fn figure(n: u64, unit: usize) -> String {
    let value = in_units(n, unit);
    match unit < GIB && value >= 99.95 {
        true => format!("{value:.0}"),
        false => format!("{value:.1}"),
    }
}

/// Formats bytes rounded up by at most `over`, in the largest unit that allows it. For amounts that must be sufficient.
pub fn bytes_at_least(n: u64, over: u64) -> String {
    bytes_at_least_to(EIB, n, over)
}

/// Formats bytes like [`bytes_at_least`], with PiB as the largest unit.
pub fn bytes_at_least_to_pib(n: u64, over: u64) -> String {
    bytes_at_least_to(PIB, n, over)
}

fn bytes_at_least_to(largest: usize, n: u64, over: u64) -> String {
    let tenths = |unit: usize| (u128::from(n) * 10).div_ceil(1 << (10 * unit));
    let is_near = |unit: usize| tenths(unit) << (10 * unit) <= (u128::from(n) + u128::from(over)) * 10;
    // A value that would round to 1024.0 of a unit is 1.0 of the next.
    let mut units = (1..=largest).rev();
    match units.find(|&unit| tenths(unit - 1) >= 10_240 && is_near(unit)) {
        Some(unit) => format!("{}.{} {}", tenths(unit) / 10, tenths(unit) % 10, NAMES[unit]),
        None => format!("{n} B"),
    }
}

/// Formats bytes for narrow columns: `18.0G`, `2.5M`, `512M`, `25`.
pub fn bytes_short(n: u64) -> String {
    match unit(n, EIB) {
        0 => format!("{n}"),
        unit => format!("{}{}", figure(n, unit), &NAMES[unit][..1]),
    }
}

/// Formats bytes like [`bytes_short`], in the largest unit in which values that differ by `step` or more look
/// different: `12,345.5M`.
pub fn bytes_apart(n: u64, step: u64) -> String {
    let mut unit = unit(n, EIB);
    // One decimal is shown.
    while unit > 0 && step < (1 << (10 * unit)) / 8 {
        unit -= 1;
    }
    if unit == 0 {
        return count(n);
    }
    let value = format!("{:.1}", in_units(n, unit));
    let (whole, tenth) = value.split_once('.').unwrap_or((&value, "0"));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    format!("{whole}.{tenth}{}", &NAMES[unit][..1])
}

/// Returns the index of the unit for a number of bytes. A value that would round to 1024 of a unit uses the next.
fn unit(n: u64, largest: usize) -> usize {
    let reaches = |unit: &usize| {
        let least = if *unit <= GIB { 20_470 } else { 20_479 };
        u128::from(n) * 20 >= least << (10 * (unit - 1))
    };
    (1..=largest).rev().find(reaches).unwrap_or(0)
}

fn in_units(n: u64, unit: usize) -> f64 {
    n as f64 / (1u64 << (10 * unit)) as f64
}

/// Formats bytes in GiB without the unit, for figures that share it: `23.0`; small values are `<0.1` instead of `0.0`.
pub(super) fn gib(n: u64) -> String {
    let value = in_units(n, 3);
    if n > 0 && value < 0.05 {
        "<0.1".into()
    } else {
        format!("{value:.1}")
    }
}

/// Formats a round size without unnecessary decimals: `256 KiB`, `1.25 MiB`; other sizes have one decimal.
pub fn round_size(n: u64) -> String {
    // Up to TiB.
    match (1..5).rev().find(|unit| n >> (10 * unit) > 0) {
        // Quarters of a unit are exact in two decimals.
        Some(unit) if n & ((1 << (10 * unit - 2)) - 1) == 0 => format!("{} {}", in_units(n, unit), NAMES[unit]),
        _ => bytes(n),
    }
}

/// Formats bytes per second in decimal units, as usual for links: `0`, `830 MB/s`, `1.2 GB/s`.
pub fn rate(per_second: u64) -> String {
    match per_second {
        0..1_000 => "0".into(),
        1_000..1_000_000 => format!("{} kB/s", per_second / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB/s", per_second / 1_000_000),
        _ => format!("{:.1} GB/s", per_second as f64 / 1e9),
    }
}

/// Parses `2GiB`, `512M`, `1.5 GiB`, `4096`: a number with an optional binary unit (K, M, G, T, each with or without
/// `B` or `iB`); without one, bytes.
///
/// # Errors
/// A message that says what was expected.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wanted = || format!("{text:?} is no size: write 512MiB, 2GiB or a number of bytes");
    let too_large = || format!("{text:?}: so many bytes do not fit into 64 bits");
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wanted()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(too_large);
    }
    let value = number.parse::<f64>().map_err(|_| wanted())? * (1u64 << shift) as f64;
    if value < u64::MAX as f64 {
        Ok(value as u64)
    } else {
        Err(too_large())
    }
}
