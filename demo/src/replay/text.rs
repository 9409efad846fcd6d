//! The report as text of at most 80 columns.

use std::fmt::Write;

use gpumem_text::units::{bytes_to_pib, count, decimals, entries, measured, nanoseconds, plural};

use super::report::{Pass, Report, TracePart};
use crate::paragraph;

const WIDTH: usize = 80;
/// The column at which figures end.
const FIGURES: usize = 34;
/// The most passes that are listed.
const LISTED: usize = 10;

impl Report {
    /// Returns the report as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        head(self, &mut text);
        memory(self, &mut text);
        fragmentation(self, &mut text);
        time(self, &mut text);
        failures(self, &mut text);
        text
    }
}

fn head(report: &Report, text: &mut String) {
    let label = if report.simulated { "SIMULATED " } else { "" };
    let behind = match report.behind {
        0 => String::new(),
        behind => format!(", {} behind", plural(behind, "block")),
    };
    line(
        text,
        &format!(
            "{label}{}, {}{behind}",
            report.device,
            bytes_to_pib(report.device_total)
        ),
    );
    let trace = &report.trace;
    let compressed = if trace.compressed { ", gzip" } else { "" };
    let mut about = format!(
        "{} ({}{compressed}): {} on {}, read in {}",
        trace.file,
        trace.format,
        plural(trace.operations, "operation"),
        plural(trace.streams, "stream"),
        measured(trace.parse_ns)
    );
    let others = (trace.other_devices > 0).then(|| {
        let devices = plural(trace.other_devices, "other device");
        format!("the history of {devices}, which is no longer than this one")
    });
    about += &in_words(left_out(trace).chain(others));
    if trace.assumed > 0 {
        let assumed = plural(trace.assumed, "operation");
        let _ = write!(about, "; including {assumed} missing from the recording");
    }
    for note in &trace.notes {
        let _ = write!(about, "; {note}");
    }
    paragraph(text, "trace      ", &about);
    let allocator = &report.allocator;
    let mut about = allocator.name.clone();
    if let Some(segments) = &allocator.segments {
        let _ = write!(about, ", {segments} segments");
    }
    if let Some(limit) = allocator.limit {
        let _ = write!(about, ", at most {}", bytes_to_pib(limit));
    }
    if allocator.publishing {
        about += ", publishing";
    }
    paragraph(text, "allocator  ", &about);
}

/// Returns a phrase with the parts that are left out, or an empty one.
pub(super) fn in_words(left_out: impl Iterator<Item = String>) -> String {
    match left_out.collect::<Vec<_>>() {
        none if none.is_empty() => String::new(),
        some => format!("; left out: {}", some.join(", ")),
    }
}

/// Returns the parts of a trace that are not replayed.
pub(super) fn left_out(trace: &TracePart) -> impl Iterator<Item = String> {
    let kinds = [
        (trace.zero_sized, "of 0 bytes"),
        (trace.recorded_failures, "that had failed when recorded"),
    ];
    let some = kinds.into_iter().filter(|(number, _)| *number > 0);
    let requests = some.map(|(number, what)| format!("{} {what}", plural(number, "request")));
    let unknown = (trace.unknown_actions > 0).then(|| {
        let entries = entries(trace.unknown_actions);
        format!(
            "{entries} whose action is not known ({})",
            trace.unknown_names.join(", ")
        )
    });
    requests.chain(unknown).chain(trace.odd.clone())
}

fn memory(report: &Report, text: &mut String) {
    let memory = &report.memory;
    let unknown = || "not known".to_owned();
    let bytes = |value: Option<u64>| value.map_or_else(unknown, bytes_to_pib);
    line(text, "\nmemory in the first pass");
    figure(text, "peak requested", &bytes_to_pib(memory.peak_requested), "");
    figure(
        text,
        "peak allocated",
        &bytes(memory.peak_allocated),
        "requested, rounded up to blocks",
    );
    figure(
        text,
        "peak reserved",
        &bytes(memory.peak_reserved),
        "physical memory taken from the device",
    );
    if memory.peak_reserved_of_all_passes != memory.peak_reserved {
        figure(text, "  of all passes", &bytes(memory.peak_reserved_of_all_passes), "");
    }
    let ratio = memory.ratio.map_or_else(unknown, |ratio| decimals(ratio, 3));
    figure(text, "ratio", &ratio, "peak reserved / peak requested");
    let mut left = plural(report.trace.live_at_end_blocks, "block");
    if report.out_of_memory.count > 0 {
        left.push_str(", if none had been refused");
    }
    figure(
        text,
        "live at the end",
        &bytes_to_pib(report.trace.live_at_end_bytes),
        &left,
    );
}

fn fragmentation(report: &Report, text: &mut String) {
    let Some(found) = &report.memory.fragmentation else {
        return;
    };
    line(text, "\nfragmentation at the reserved peak");
    let percent = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{:.1} %", v * 100.0));
    figure(text, "internal", &percent(found.internal), "1 - requested / allocated");
    figure(
        text,
        "external",
        &percent(found.external),
        "1 - largest free block / all free",
    );
    figure(
        text,
        "inactive split",
        &percent(Some(found.inactive_split)),
        "free but pinned by neighbours / reserved",
    );
    let about = format!(
        "after operation {}, with {} requested in {} of blocks",
        count(found.operation),
        bytes_to_pib(found.requested),
        bytes_to_pib(found.allocated)
    );
    paragraph(text, "  ", &about);
}

fn time(report: &Report, text: &mut String) {
    let time = &report.time;
    let modelled = time.driver_cost == "modelled";
    line(text, "\ntime in the allocator");
    let cost = match time.passes.first().and_then(|first| first.driver_ns) {
        Some(_) if modelled => "modelled cost",
        Some(_) => "time in calls",
        None => "",
    };
    row(text, ["pass", "total", "an operation", "driver calls", cost]);
    let last = time.passes.len();
    let mut left_out = 0;
    for (number, pass) in (1..).zip(&time.passes) {
        let best = time.steady_pass == Some(number);
        if last > LISTED && number > 1 && !best {
            left_out += 1;
            continue;
        }
        let name = match number {
            1 => "1 cold".to_owned(),
            n if best => format!("{n} best"),
            n => n.to_string(),
        };
        row(
            text,
            [
                &name,
                &measured(pass.ns),
                &nanoseconds(pass.ns_per_op),
                &count(calls(pass)),
                &cost_of(pass),
            ],
        );
    }
    if left_out > 0 {
        line(text, &format!("  {} other passes are not listed", count(left_out)));
    }
    for (number, pass) in (1..).zip(&time.passes) {
        if number == 1 || time.steady_pass == Some(number) {
            let calls: Vec<String> = pass
                .driver_calls
                .iter()
                .map(|(name, n)| format!("{name} {}", count(*n)))
                .collect();
            let calls = if calls.is_empty() {
                "none".to_owned()
            } else {
                calls.join(", ")
            };
            paragraph(text, "  ", &format!("driver calls of pass {number}: {calls}"));
        }
    }
    let where_ = if modelled {
        "The totals include the simulated device's bookkeeping; the modelled cost of its calls is separate."
    } else {
        match time.passes.first().and_then(|first| first.driver_ns) {
            Some(_) => {
                "The totals include the driver calls, which are timed except for cuStreamQuery, cuEventQuery and cuEventRecord."
            }
            None => "The totals include the driver calls.",
        }
    };
    let own = format!(
        "The replay itself takes {} of each operation. {where_}",
        nanoseconds(time.own_ns_per_op)
    );
    paragraph(text, "  ", &own);
}

fn calls(pass: &Pass) -> u64 {
    pass.driver_calls.values().sum()
}

fn cost_of(pass: &Pass) -> String {
    pass.driver_ns.map_or_else(String::new, measured)
}

fn failures(report: &Report, text: &mut String) {
    let failures = &report.out_of_memory;
    let Some(first) = &failures.first else {
        line(text, "\nout of memory: never");
        return;
    };
    let in_first = report.time.passes.first().map_or(0, |pass| pass.out_of_memory);
    let said = format!(
        "\nout of memory: {}, {} of them in the first pass",
        plural(failures.count, "request"),
        count(in_first)
    );
    line(text, &said);
    let about = format!(
        "The first was operation {} of pass {}, of {}: {}",
        count(first.operation),
        first.pass,
        bytes_to_pib(first.bytes),
        first.message
    );
    paragraph(text, "  ", &about);
    // The advice for one request may not be enough for the next ones.
    let peak = bytes_to_pib(report.trace.peak_requested);
    paragraph(text, "  ", &format!("The whole trace requests {peak} at its peak."));
}

fn line(text: &mut String, what: &str) {
    text.push_str(what);
    text.push('\n');
}

fn figure(text: &mut String, label: &str, value: &str, note: &str) {
    let width = FIGURES - 2 - label.len();
    line(text, format!("  {label}{value:>width$}   {note}").trim_end());
}

fn row(text: &mut String, [name, a, b, c, d]: [&str; 5]) {
    line(text, format!("  {name:<10}{a:>12}{b:>16}{c:>16}{d:>16}").trim_end());
}

/// Wraps words behind a label.
fn paragraph(text: &mut String, label: &str, words: &str) {
    paragraph::paragraph(text, label, words, WIDTH);
}
