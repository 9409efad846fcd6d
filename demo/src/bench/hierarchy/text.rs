//! The report as text of 80 columns.

use gpumem_text::units::bytes_to_pib;

use super::report::{Bandwidth, Level, Published, Report, Rung};
use crate::paragraph::paragraph;

/// Columns of the text.
const WIDTH: usize = 80;
/// Indent of what belongs to a level.
const INDENT: &str = "    ";

impl Report {
    /// Returns the report as text for people, in lines of at most 80 columns.
    pub fn text(&self) -> String {
        let card = &self.card;
        let (major, minor) = card.compute_capability;
        let mut text = String::new();
        let ecc = match card.ecc {
            Some(true) => ", ECC on",
            Some(false) => ", ECC off",
            None => "",
        };
        let head = format!(
            "{}, compute capability {major}.{minor}, {} SMs at {:.0} MHz, driver {}{ecc}",
            card.name, card.sms, self.sm_mhz, card.driver
        );
        paragraph(&mut text, "", &head, WIDTH);
        let first = self.load_ms.map(|ms| format!("; first kernel after {ms:.0} ms"));
        let run = format!(
            "measured in {:.1} s with {} of device memory{}",
            self.duration_ms as f64 / 1e3,
            bytes_to_pib(self.budget),
            first.unwrap_or_default()
        );
        paragraph(&mut text, "", &run, WIDTH);
        text += "\nlevel            size                    cycles        ns   bandwidth\n";
        for level in &self.levels {
            level_text(level, &mut text);
        }
        self.curve_text(&mut text);
        text
    }

    fn curve_text(&self, text: &mut String) {
        if !self.curve.is_empty() {
            *text += "\nlatency by working set, random order\n";
        }
        for point in &self.curve {
            let name = match point.region {
                super::report::Region::L1 => "L1",
                super::report::Region::L2Near => "L2 near",
                super::report::Region::L2Far => "L2 far",
                super::report::Region::Device => "device memory",
                super::report::Region::Between => "",
            };
            let line = format!(
                "{:>12} {:8.1} ns {:8.1} cycles  {name}",
                bytes_to_pib(point.bytes),
                point.ns,
                point.cycles
            );
            *text += line.trim_end();
            text.push('\n');
        }
        if let Some(spread) = &self.spread {
            let line = format!(
                "near L2 by SM ({} of them, working set {}): {:.1} to {:.1} ns, median {:.1}",
                spread.by_sm.len(),
                bytes_to_pib(spread.bytes),
                spread.least_ns,
                spread.most_ns,
                spread.median_ns
            );
            paragraph(text, "", &line, WIDTH);
        }
    }
}

fn level_text(level: &Level, text: &mut String) {
    let size = match (level.bytes_per_sm, level.bytes) {
        (Some(per_sm), Some(all)) => format!("{}/SM, {}", bytes_to_pib(per_sm), bytes_to_pib(all)),
        (_, Some(all)) => bytes_to_pib(all),
        _ => "-".to_owned(),
    };
    let (cycles, ns) = match &level.latency {
        Some(latency) => (format!("{:.1}", latency.cycles), format!("{:.1}", latency.ns)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let best = level.bandwidths.iter().max_by(|a, b| a.gb_per_s.total_cmp(&b.gb_per_s));
    let best = best.map_or("-".to_owned(), |best| rate(best.gb_per_s));
    *text += &format!("{:<16} {size:<22} {cycles:>7} {ns:>9}   {best}\n", level.title());
    if level.bandwidths.len() > 1 || level.bandwidths.iter().any(|one| one.per_cycle_and_sm.is_some()) {
        let all: Vec<String> = level.bandwidths.iter().map(bandwidth).collect();
        paragraph(text, INDENT, &all.join(", "), WIDTH);
    }
    for other in &level.other_latencies {
        let line = format!("by {}: {:.1} cycles, {:.1} ns", other.load, other.cycles, other.ns);
        paragraph(text, INDENT, &line, WIDTH);
    }
    if level.latency.is_some() && level.rung != Rung::Registers {
        let latency = level.latency.clone().unwrap_or_default();
        let line = format!(
            "working set {}, {}, stride {} B, {}",
            bytes_to_pib(latency.bytes),
            latency.order,
            latency.stride,
            latency.load
        );
        paragraph(text, INDENT, &line, WIDTH);
    }
    for figure in &level.published {
        paragraph(text, &format!("{INDENT}published: "), &published(figure), WIDTH);
    }
    if !level.note.is_empty() {
        paragraph(text, INDENT, &level.note, WIDTH);
    }
}

fn bandwidth(one: &Bandwidth) -> String {
    let per_sm = one
        .per_cycle_and_sm
        .map(|bytes| format!(" ({bytes:.0} B per cycle and SM)"));
    format!("{} {}{}", one.what, rate(one.gb_per_s), per_sm.unwrap_or_default())
}

fn published(figure: &Published) -> String {
    let range = |(from, to): (f64, f64), unit: &str| match from == to {
        true => format!("{from} {unit}"),
        false => format!("{from} to {to} {unit}"),
    };
    let rates = |(from, to): (f64, f64)| match from == to {
        true => rate(from),
        false => format!("{} to {}", rate(from), rate(to)),
    };
    let parts = [
        figure.cycles.map(|cycles| range(cycles, "cycles")),
        figure.ns.map(|ns| range(ns, "ns")),
        figure.gb_per_s.map(rates),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{} ({}, {})", parts.join(", "), figure.card, figure.source)
}

/// Returns a bandwidth with its unit.
fn rate(gb_per_s: f64) -> String {
    match gb_per_s {
        rate if rate >= 1000.0 => format!("{:.2} TB/s", rate / 1e3),
        rate if rate >= 100.0 => format!("{rate:.0} GB/s"),
        rate => format!("{rate:.1} GB/s"),
    }
}
