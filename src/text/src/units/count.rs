//! Counts.

#[cfg(test)]
#[path = "count_tests.rs"]
mod tests;

/// Formats a count in groups of three digits: `1,024`.
pub fn count(n: u64) -> String {
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

/// Formats a count in at most four columns, rounded down: `9999`, `12k`, `3M`.
pub fn count_short(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{}k", n / 1_000),
        1_000_000..1_000_000_000 => format!("{}M", n / 1_000_000),
        _ => ">1G".into(),
    }
}

/// Formats a non-negative number with `decimals` decimals and groups of three digits: `27,235.740`.
pub fn decimals(value: f64, decimals: u32) -> String {
    let unit = 10u64.pow(decimals);
    let units = (value * unit as f64).round() as u64;
    format!(
        "{}.{:0width$}",
        count(units / unit),
        units % unit,
        width = decimals as usize
    )
}

/// Formats a count with its noun: `1 block`, `2 blocks`, `1,234 blocks`.
pub fn plural(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Formats a number of entries: `1 entry`, `1,234 entries`.
pub fn entries(n: u64) -> String {
    format!("{} {}", count(n), if n == 1 { "entry" } else { "entries" })
}
