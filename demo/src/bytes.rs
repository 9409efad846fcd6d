//! Sizes as people write and read them: binary units, one decimal.

/// One MiB.
pub const MIB: u64 = 1 << 20;

/// `512 B`, `1.3 GiB`: binary units, one decimal from 1 KiB on.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would be printed as 1024.0 belongs to the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 block`, `1,234 blocks`.
pub(crate) fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

/// `1 entry`, `1,234 entries`.
pub(crate) fn entries(n: u64) -> String {
    format!("{} {}", count(n), if n == 1 { "entry" } else { "entries" })
}

/// Reads `2GiB`, `512M`, `1.5 GiB`, `4096`: a number with an optional binary unit (K, M, G, T, each with or without
/// `B` or `iB`); without one, bytes.
///
/// # Errors
/// A sentence that says what was expected.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes_are_read_in_the_forms_people_write() {
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
    fn a_size_that_is_too_large_is_not_said_to_be_none() {
        for large in ["99999999999T", "18446744073709551616", "99999999.5T"] {
            let error = parse_bytes(large).unwrap_err();
            assert!(error.contains("do not fit into 64 bits"), "{error}");
        }
    }

    #[test]
    fn sizes_are_written_with_one_decimal() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (500 * MIB, "500.0 MiB"),
            (1302 * MIB, "1.3 GiB"),
            (1024 * MIB - 1, "1.0 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(format_bytes(bytes), text);
        }
    }
}
