//! Parses values of the command line.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Reads a whole number within a range.
///
/// # Errors
/// When the text is not a number in the range; the message names it.
pub fn parse_number<N: FromStr + PartialOrd + Display>(text: &str, range: RangeInclusive<N>) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("say a whole number from {} to {}", range.start(), range.end()))
}

/// Reads `500ms`, `2s`, `1.5s`, `1m`, `1h`. A number alone means seconds.
///
/// # Errors
/// When the text is not a duration; the message says what is expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if is_negative(text) {
        return Err("must not be negative".into());
    }
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim() {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("say it like 500ms or 2s".into()),
    };
    let number: f64 = number.parse().map_err(|_| "say it like 500ms or 2s".to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "too long".into())
}

/// Checks whether a text is a number below 0, with any unit.
pub fn is_negative(text: &str) -> bool {
    text.strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}
