//! Figures that only views show. Bytes, shares and durations are in [`crate::units`].

#[cfg(test)]
mod tests;

/// Bytes in GiB without the unit, for a row of figures that share it: `23.0`, `0.5`; `<0.1` rather than a false `0.0`.
pub(super) fn gib(bytes: u64) -> String {
    let value = bytes as f64 / (1u64 << 30) as f64;
    if bytes > 0 && value < 0.05 {
        "<0.1".into()
    } else {
        format!("{value:.1}")
    }
}

/// A size that is a round number of units without needless decimals: `256 KiB`, `1.25 MiB`; else with one.
pub(super) fn round_size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|&(_, shift)| bytes >> shift > 0) {
        // Quarters of a unit are exact in two decimals.
        Some((unit, shift)) if bytes & ((1 << (shift - 2)) - 1) == 0 => {
            format!("{} {unit}", bytes as f64 / (1u64 << shift) as f64)
        }
        _ => crate::units::bytes(bytes),
    }
}

/// Bytes per second in decimal units, as links are sold: `0`, `830 MB/s`, `1.2 GB/s`.
pub(super) fn rate(bytes: u64) -> String {
    match bytes {
        0..1_000 => "0".into(),
        1_000..1_000_000 => format!("{} kB/s", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB/s", bytes / 1_000_000),
        _ => format!("{:.1} GB/s", bytes as f64 / 1e9),
    }
}

/// A count in groups of three digits: `1,024`.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A command line without the folder of its program: `python3 train.py` rather than `/usr/bin/python3 train.py`.
pub(super) fn program(command: &str) -> &str {
    let first = command.split(' ').next().unwrap_or("");
    let name = first.rfind('/').map_or(0, |slash| slash + 1);
    if name < first.len() { &command[name..] } else { command }
}

/// `1 block`, `2 blocks`.
pub(super) fn plural(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}
