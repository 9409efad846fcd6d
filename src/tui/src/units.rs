//! Figures as text, the same everywhere.

use crate::wrap::width;

#[cfg(test)]
#[path = "units_tests.rs"]
mod tests;

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

/// The same of what would not be enough if it were less, and of what must not be more than `over` more.
pub fn bytes_at_least(n: u64, over: u64) -> String {
    let tenths = |unit: usize| (u128::from(n) * 10).div_ceil(1 << (10 * unit));
    let is_near = |unit: usize| tenths(unit) << (10 * unit) <= (u128::from(n) + u128::from(over)) * 10;
    // What is not quite 1024.0 of the next smaller unit is one of this.
    let mut units = (1..NAMES.len()).rev();
    match units.find(|&unit| tenths(unit - 1) >= 10_240 && is_near(unit)) {
        Some(unit) => format!("{}.{} {}", tenths(unit) / 10, tenths(unit) % 10, NAMES[unit]),
        None => format!("{n} B"),
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

/// The same in the largest unit that tells figures apart which differ by `step` or more: `12,345.5M`.
pub fn bytes_apart(n: u64, step: u64) -> String {
    let (_, mut unit) = scale(n);
    // A tenth of it is what is shown.
    while unit > 0 && step < (1 << (10 * unit)) / 8 {
        unit -= 1;
    }
    if unit == 0 {
        return count(n);
    }
    let value = format!("{:.1}", n as f64 / (1u64 << (10 * unit)) as f64);
    let (whole, tenth) = value.split_once('.').unwrap_or((&value, "0"));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    format!("{whole}.{tenth}{}", &NAMES[unit][..1])
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

/// How long something has been so, in steps that grow with it: `42 s`, `3 min`, `2 h 05 min`.
pub fn age(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        _ => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// How long ago, to the minute, so that the text stays still: `just now`, `3 min ago`, `2 h ago`.
pub fn ago(nanos: u64) -> String {
    match nanos / 60_000_000_000 {
        0 => "just now".into(),
        minutes @ 1..60 => format!("{minutes} min ago"),
        minutes => format!("{} h ago", minutes / 60),
    }
}

/// Bytes in GiB without the unit, for a row of figures that share it: `23.0`, `0.5`; `<0.1` rather than a false `0.0`.
pub fn gib(n: u64) -> String {
    let value = n as f64 / (1u64 << 30) as f64;
    if n > 0 && value < 0.05 {
        "<0.1".into()
    } else {
        format!("{value:.1}")
    }
}

/// A size that is a round number of units without needless decimals: `256 KiB`, `1.25 MiB`; else with one.
pub fn round_size(n: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|&(_, shift)| n >> shift > 0) {
        // Quarters of a unit are exact in two decimals.
        Some((unit, shift)) if n & ((1 << (shift - 2)) - 1) == 0 => {
            format!("{} {unit}", n as f64 / (1u64 << shift) as f64)
        }
        _ => bytes(n),
    }
}

/// Bytes per second in decimal units, as links are sold: `0`, `830 MB/s`, `1.2 GB/s`.
pub fn rate(per_second: u64) -> String {
    match per_second {
        0..1_000 => "0".into(),
        1_000..1_000_000 => format!("{} kB/s", per_second / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB/s", per_second / 1_000_000),
        _ => format!("{:.1} GB/s", per_second as f64 / 1e9),
    }
}

/// A count in groups of three digits: `1,024`.
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

/// A count in at most four columns, rounded down: `9999`, `12k`, `3M`.
pub fn count_short(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{}k", n / 1_000),
        1_000_000..1_000_000_000 => format!("{}M", n / 1_000_000),
        _ => ">1G".into(),
    }
}

/// A command line without the folder of its program: `python3 train.py` rather than `/usr/bin/python3 train.py`.
pub fn program(command: &str) -> &str {
    let first = command.split(' ').next().unwrap_or("");
    let name = first.rfind('/').map_or(0, |slash| slash + 1);
    if name < first.len() { &command[name..] } else { command }
}

/// Whether a text takes no more than `room` columns.
pub fn fits(text: &str, room: usize) -> bool {
    usize::from(width(text)) <= room
}

/// A command line in the fullest words that fit into `room` columns, else in the shortest: first the folder of the program is left out,
/// then those of its arguments (`python3 train.py` of `python3 /data/jobs/train.py`), then this program's own name
/// (`replay trace.csv` of `gpumem-tui replay trace.csv`).
pub fn command_in(command: &str, room: usize) -> String {
    let full = program(command);
    if fits(full, room) {
        return full.to_owned();
    }
    let bare = |word: &str| -> String {
        let name = word.rsplit('/').next().unwrap_or(word);
        let shown = if word.starts_with('-') || name.is_empty() {
            word
        } else {
            name
        };
        shown.to_owned()
    };
    let names: Vec<String> = full.split(' ').map(bare).collect();
    let names = names.join(" ");
    let own = format!("{} ", env!("CARGO_PKG_NAME"));
    match names.strip_prefix(&own) {
        Some(rest) if !fits(&names, room) => rest.to_owned(),
        _ => names,
    }
}

/// A text as the beginning of a sentence.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

/// `1 block`, `2 blocks`.
pub fn plural(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}
