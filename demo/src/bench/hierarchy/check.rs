//! Checks a report that comes from elsewhere: from a file, or from the output of another process.

use super::report::{Bandwidth, Card, Latency, Level, Point, Published, Report, Rung, SCHEMA, Spread};

/// Why a report cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {why}")]
pub struct CheckError {
    /// The part of the report.
    what: &'static str,
    why: &'static str,
}

/// Most characters of a name, a version or a unit.
const SHORT: usize = 80;
/// Most characters of a note.
const LONG: usize = 400;
/// Most bytes of any memory: a pebibyte. Sums of such sizes do not overflow.
const MOST_BYTES: u64 = 1 << 50;
/// Largest figure: 10^12 ns are a quarter of an hour, 10^12 GB/s more than any device moves.
const MOST: f64 = 1e12;
/// Most SMs of a card.
const MOST_SMS: u32 = 4096;
/// Most entries of a list.
const MOST_ENTRIES: usize = 512;
/// Most seconds since 1970: the year 9999.
const MOST_SECONDS: u64 = 253_402_300_799;
/// Most milliseconds that a run takes: a year.
const MOST_MS: u64 = 31_536_000_000;

type Checked = Result<(), CheckError>;

impl Report {
    /// Returns the report with its texts cleaned, if every figure can be true: finite, not negative, within bounds, lists short and in
    /// order, each level there at most once.
    ///
    /// # Errors
    /// When a value cannot be true, or the schema is another one.
    pub fn checked(mut self) -> Result<Report, CheckError> {
        if self.schema != SCHEMA {
            return fail("the schema", "is not gpumem-hierarchy/1: measure again");
        }
        check_card(&mut self.card)?;
        at_most("the date", self.date, MOST_SECONDS)?;
        at_most("the duration", self.duration_ms, MOST_MS)?;
        at_most("the budget", self.budget, MOST_BYTES)?;
        number("the clock", self.sm_mhz)?;
        self.load_ms.map_or(Ok(()), |ms| number("the time to load", ms))?;
        let rungs = |levels: &[Level]| levels.is_sorted_by(|a, b| (a.rung, a.peer) < (b.rung, b.peer));
        require("the levels", rungs(&self.levels), "are not in order, or there twice")?;
        for level in &mut self.levels {
            let peers = |number| self.card.peers.iter().any(|peer| peer.device == number);
            let known = level.peer.is_none_or(peers) && level.peer.is_some() == (level.rung == Rung::Peer);
            require("a level", known, "is of a peer that the card does not have")?;
            check_level(level)?;
        }
        check_curve(&self.curve)?;
        self.spread.as_ref().map_or(Ok(()), check_spread)?;
        Ok(self)
    }
}

fn check_card(card: &mut Card) -> Checked {
    for text in [&mut card.name, &mut card.uuid, &mut card.driver] {
        shorten(text, SHORT);
    }
    entries("the list of peers", card.peers.len())?;
    let numbers = card.peers.is_sorted_by(|a, b| a.device < b.device);
    require("the list of peers", numbers, "is not in order")?;
    for peer in &mut card.peers {
        shorten(&mut peer.name, SHORT);
        shorten(&mut peer.uuid, SHORT);
    }
    let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
    require("the card's UUID", plain(&card.uuid), "is none")?;
    require("the driver's version", !card.driver.is_empty(), "is missing")?;
    let sms = (1..=MOST_SMS).contains(&card.sms);
    require("the number of SMs", sms, "is out of range")?;
    let sizes = [
        card.memory_bytes,
        card.l2_bytes,
        card.shared_bytes_per_sm,
        card.register_bytes_per_sm,
        card.l2_persisting_max_bytes.unwrap_or(0),
        card.l2_persisting_bytes.unwrap_or(0),
    ];
    sizes.into_iter().try_for_each(|size| bytes("the card", size))
}

fn check_level(level: &mut Level) -> Checked {
    bytes("a level", level.bytes_per_sm.unwrap_or(0))?;
    bytes("a level", level.bytes.unwrap_or(0))?;
    shorten(&mut level.note, LONG);
    let lists = [
        level.other_latencies.len(),
        level.bandwidths.len(),
        level.published.len(),
    ];
    lists.into_iter().try_for_each(|length| entries("a level", length))?;
    let latencies = level.latency.iter_mut().chain(&mut level.other_latencies);
    latencies.into_iter().try_for_each(check_latency)?;
    level.bandwidths.iter_mut().try_for_each(check_bandwidth)?;
    level.published.iter_mut().try_for_each(check_published)
}

fn check_latency(latency: &mut Latency) -> Checked {
    shorten(&mut latency.order, SHORT);
    shorten(&mut latency.load, SHORT);
    bytes("a latency", latency.bytes)?;
    for figure in [latency.cycles, latency.ns, latency.least_ns, latency.most_ns] {
        positive("a latency", figure)?;
    }
    let within = latency.least_ns <= latency.ns && latency.ns <= latency.most_ns;
    require("a latency", within, "is not between its smallest and largest sample")
}

fn check_bandwidth(bandwidth: &mut Bandwidth) -> Checked {
    shorten(&mut bandwidth.what, SHORT);
    bytes("a bandwidth", bandwidth.bytes)?;
    positive("a bandwidth", bandwidth.gb_per_s)?;
    positive("a bandwidth", bandwidth.median_gb_per_s)?;
    number("a bandwidth", bandwidth.per_cycle_and_sm.unwrap_or(0.0))?;
    let within = bandwidth.median_gb_per_s <= bandwidth.gb_per_s;
    require("a bandwidth", within, "has a median above its best sample")
}

fn check_published(figure: &mut Published) -> Checked {
    shorten(&mut figure.card, SHORT);
    shorten(&mut figure.source, SHORT);
    for (from, to) in [figure.cycles, figure.ns, figure.gb_per_s].into_iter().flatten() {
        positive("a published figure", from)?;
        positive("a published figure", to)?;
        require("a published figure", from <= to, "goes downwards")?;
    }
    Ok(())
}

fn check_curve(curve: &[Point]) -> Checked {
    entries("the curve", curve.len())?;
    let rises = curve.is_sorted_by(|a, b| a.bytes < b.bytes);
    require("the curve", rises, "is not in order of its working sets")?;
    for point in curve {
        bytes("the curve", point.bytes)?;
        positive("the curve", point.ns)?;
        positive("the curve", point.cycles)?;
    }
    Ok(())
}

fn check_spread(spread: &Spread) -> Checked {
    entries("the spread", spread.by_sm.len())?;
    bytes("the spread", spread.bytes)?;
    let sms = spread.by_sm.is_sorted_by(|(a, _), (b, _)| a < b);
    require("the spread", sms, "is not in order of its SMs")?;
    let figures = spread.by_sm.iter().map(|(_, ns)| *ns);
    for ns in figures.chain([spread.least_ns, spread.median_ns, spread.most_ns]) {
        positive("the spread", ns)?;
    }
    let within = spread.least_ns <= spread.median_ns && spread.median_ns <= spread.most_ns;
    require(
        "the spread",
        within,
        "has a median that is not between its smallest and largest figure",
    )
}

fn shorten(text: &mut String, limit: usize) {
    *text = gpumem_text::clean_line(text.as_bytes(), limit);
}

fn fail<T>(what: &'static str, why: &'static str) -> Result<T, CheckError> {
    Err(CheckError { what, why })
}

fn require(what: &'static str, holds: bool, why: &'static str) -> Checked {
    if holds { Ok(()) } else { fail(what, why) }
}

fn at_most(what: &'static str, value: u64, most: u64) -> Checked {
    require(what, value <= most, "is out of range")
}

fn bytes(what: &'static str, value: u64) -> Checked {
    require(what, value <= MOST_BYTES, "has a size that is out of range")
}

fn entries(what: &'static str, length: usize) -> Checked {
    require(what, length <= MOST_ENTRIES, "has too many entries")
}

/// A figure that may be 0. NaN and infinities are not within the bounds.
fn number(what: &'static str, value: f64) -> Checked {
    require(what, (0.0..=MOST).contains(&value), "has a figure that is out of range")
}

/// A figure that is shown on a logarithmic axis, or divided by.
fn positive(what: &'static str, value: f64) -> Checked {
    require(what, value > 0.0 && value <= MOST, "has a figure that is out of range")
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
