//! Translates what a benchmark measured into the model's types, and cleans all text that will reach the terminal.

use gpumem_demo::bench::hierarchy as bench;
use gpumem_demo::bench::protocol::{Body, Line, SCHEMA};
use gpumem_text::clean;
use gpumem_text::units::{self, nanoseconds};

use crate::event::{BenchEvent, DemoEvent};
use crate::model::{CurvePoint, Hierarchy, HierarchyLevel, LevelBandwidth, LevelLatency, Rung};

/// Translates a line of a benchmark; `None` if it is not one.
pub(super) fn line(text: &str) -> Option<DemoEvent> {
    let line: Line = serde_json::from_str(text).ok()?;
    if line.schema != SCHEMA {
        return None;
    }
    Some(match line.body {
        // It says nothing that the dashboard does not know.
        Body::Start(_) => DemoEvent::Bench(BenchEvent::Progress {
            done: (0, 0),
            what: "the device is opened".into(),
            left: 0,
        }),
        Body::Progress(progress) => DemoEvent::Bench(BenchEvent::Progress {
            done: (progress.done, progress.of),
            what: clean(&progress.what),
            left: progress.left_ms.saturating_mul(1_000_000),
        }),
        Body::Hierarchy { report, not_kept, .. } => {
            let not_kept = not_kept.as_deref().map(clean);
            DemoEvent::Bench(BenchEvent::Hierarchy(Box::new(hierarchy(&report)), not_kept))
        }
        // The dashboard runs no other benchmark.
        Body::Claims { .. } => return None,
        Body::Error { message, exit_code } => DemoEvent::GaveUp {
            text: clean(&message),
            exit_code,
        },
    })
}

/// Translates a report.
pub(crate) fn hierarchy(report: &bench::Report) -> Hierarchy {
    let card = &report.card;
    Hierarchy {
        card: clean(&card.name),
        uuid: clean(&card.uuid),
        driver: clean(&card.driver),
        sms: card.sms,
        sm_mhz: report.sm_mhz,
        date: report.date,
        duration_ms: report.duration_ms,
        budget: report.budget,
        persisting: card.l2_persisting_bytes.zip(card.l2_persisting_max_bytes),
        levels: report.levels.iter().map(level).collect(),
        curve: report.curve.iter().map(point).collect(),
        spread: report.spread.as_ref().map(|s| (s.least_ns, s.median_ns, s.most_ns)),
    }
}

fn level(level: &bench::Level) -> HierarchyLevel {
    let published_ns = level.published.iter().find_map(|published| Some(published.ns?.0));
    HierarchyLevel {
        rung: rung(level.rung),
        name: level.title(),
        bytes_per_sm: level.bytes_per_sm,
        bytes: level.bytes,
        latency: level.latency.as_ref().map(latency),
        other_latencies: level.other_latencies.iter().map(latency).collect(),
        bandwidths: level
            .bandwidths
            .iter()
            .map(|bandwidth| LevelBandwidth {
                what: clean(&bandwidth.what),
                gb_per_s: bandwidth.gb_per_s,
            })
            .collect(),
        note: clean(&level.note),
        published: level.published.iter().map(published).collect(),
        reference_ns: published_ns.filter(|_| level.latency.is_none()),
    }
}

fn rung(rung: bench::Rung) -> Rung {
    match rung {
        bench::Rung::Registers => Rung::Registers,
        bench::Rung::Shared => Rung::Shared,
        bench::Rung::L1 => Rung::L1,
        bench::Rung::L2Near => Rung::L2Near,
        bench::Rung::L2Far => Rung::L2Far,
        bench::Rung::Device => Rung::Device,
        bench::Rung::Peer => Rung::Peer,
        bench::Rung::PinnedHost => Rung::PinnedHost,
        bench::Rung::PageableHost => Rung::PageableHost,
        bench::Rung::Disk => Rung::Disk,
    }
}

fn latency(latency: &bench::Latency) -> LevelLatency {
    let how = match latency.bytes {
        0 => clean(&latency.load),
        bytes => format!(
            "{} over {} in {} order, {} B apart",
            clean(&latency.load),
            units::round_size(bytes),
            if latency.order == "random cycle" {
                "random"
            } else {
                "dependent"
            },
            latency.stride
        ),
    };
    LevelLatency {
        ns: latency.ns,
        cycles: latency.cycles,
        range: (latency.least_ns, latency.most_ns),
        how,
    }
}

/// Says what was published, in a line: `29 cycles (H800, Luo 2024)`.
fn published(published: &bench::Published) -> String {
    let range = |(from, to): (f64, f64), one: &dyn Fn(f64) -> String| match from == to {
        true => one(from),
        false => format!("{} to {}", one(from), one(to)),
    };
    let cycles = published
        .cycles
        .map(|range_| format!("{} cycles", range(range_, &|n| format!("{n:.0}"))));
    let ns = published.ns.map(|range_| range(range_, &nanoseconds));
    let rates = published.gb_per_s.map(|range_| range(range_, &rate));
    let figures: Vec<String> = [cycles, ns, rates].into_iter().flatten().collect();
    format!(
        "{} ({}, {})",
        figures.join(", "),
        clean(&published.card),
        clean(&published.source)
    )
}

/// Formats a bandwidth in GB/s: `7.5 GB/s`, `4.4 TB/s`.
fn rate(gb_per_s: f64) -> String {
    match gb_per_s {
        ..1000.0 => format!("{} GB/s", units::decimals(gb_per_s, 1)),
        _ => format!("{} TB/s", units::decimals(gb_per_s / 1e3, 1)),
    }
}

fn point(point: &bench::Point) -> CurvePoint {
    let rung = match point.region {
        bench::Region::L1 => Some(Rung::L1),
        bench::Region::L2Near => Some(Rung::L2Near),
        bench::Region::L2Far => Some(Rung::L2Far),
        bench::Region::Device => Some(Rung::Device),
        bench::Region::Between => None,
    };
    CurvePoint {
        bytes: point.bytes,
        ns: point.ns,
        rung,
    }
}
